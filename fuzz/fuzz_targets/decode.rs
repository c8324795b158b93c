//! See `anteros_fuzz::decode`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::decode(input));
