//! A chunk's content before compression, behind sound checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_trace::fuzz::chunk(data));
