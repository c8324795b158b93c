use super::{compress, text};
use crate::{Algorithm, Decoder, Length, Params, Scratch};

#[test]
fn a_scratch_buffer_is_zero_and_as_long_as_asked() {
    for len in [0, 1, 4095, 4096, 4097, 12 << 20] {
        let mut scratch = Scratch::new(len).expect("there is memory");
        let slice = scratch.as_mut_slice();
        assert_eq!(slice.len(), len);
        assert!(slice.iter().all(|&byte| byte == 0));
        slice.fill(7);
        assert!(scratch.as_mut_slice().iter().all(|&byte| byte == 7));
    }
}

#[test]
fn more_than_there_is_is_an_error() {
    assert!(Scratch::new(usize::MAX).is_err());
}

#[test]
fn every_codec_decodes_there() {
    let data = text(300_000);
    let mut decoder = Decoder::new();
    for algorithm in Algorithm::ALL {
        let stream = compress(algorithm, &data);
        let mut scratch = Scratch::new(data.len()).expect("there is memory");
        let out = scratch.as_mut_slice();
        let result = decoder.decode(algorithm, &Params::default(), &stream, out, Length::Exact);
        assert_eq!(result, Ok(()));
        assert!(out == data);
    }
}
