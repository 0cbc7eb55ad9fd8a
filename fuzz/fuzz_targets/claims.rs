//! A file of claims.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_sim::fuzz::claims_file(data));
