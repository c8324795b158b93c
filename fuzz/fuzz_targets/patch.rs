//! See `anteros_fuzz::patch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::patch(input));
