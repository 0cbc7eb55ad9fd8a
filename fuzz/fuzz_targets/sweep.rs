//! The file of a sweep.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_study::fuzz::sweep(data));
