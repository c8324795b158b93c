//! See `anteros_fuzz::read`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::read(input));
