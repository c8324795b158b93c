//! See `anteros_fuzz::log_offline`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::log_offline(input));
