//! A whole trace file: opened, read, sought, outlined, salvaged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_trace::fuzz::reader(data));
