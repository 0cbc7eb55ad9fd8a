//! A saved memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_sim::fuzz::snapshot(data));
