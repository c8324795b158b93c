//! See `anteros_fuzz::launches`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::launches(input));
