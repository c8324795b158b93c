//! See `anteros_fuzz::lists`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| anteros_fuzz::lists(input));
