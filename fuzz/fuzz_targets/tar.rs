//! See `anteros_fuzz::tar`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::tar(input));
