//! Samples of perf, plain or compressed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_trace::fuzz::perf(data));
