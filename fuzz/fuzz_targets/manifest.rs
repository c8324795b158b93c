//! See `anteros_fuzz::manifest`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::manifest(input));
