//! See `anteros_fuzz::profile`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::profile(input));
