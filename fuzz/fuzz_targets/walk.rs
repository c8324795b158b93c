//! See `anteros_fuzz::walk`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::walk(input));
