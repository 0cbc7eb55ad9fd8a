//! A journal of changes to the system.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_live::fuzz::journal(data));
