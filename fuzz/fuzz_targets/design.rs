//! A machine or a design, as a file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_sim::fuzz::design(data));
