//! See `anteros_fuzz::trace`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::trace(input));
