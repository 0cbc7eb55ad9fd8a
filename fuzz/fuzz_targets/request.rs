//! A request to the status socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| terrace_live::fuzz::request(data));
