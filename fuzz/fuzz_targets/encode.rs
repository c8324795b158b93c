//! See `anteros_fuzz::encode`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::encode(input));
