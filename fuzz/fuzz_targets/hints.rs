//! A file of hints.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_hints::fuzz::hints(data));
