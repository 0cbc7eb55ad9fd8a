//! A setting, as `--set` takes it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_sim::fuzz::setting(data));
