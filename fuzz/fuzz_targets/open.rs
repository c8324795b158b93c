//! See `anteros_fuzz::open`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::open(input));
