//! A zip archive of parts of a trace.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_trace::fuzz::archive(data));
