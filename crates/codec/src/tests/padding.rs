use crate::{right_align, strip_zero_padding};

#[test]
fn a_stream_starts_at_the_first_byte_that_is_not_zero() {
    assert_eq!(
        strip_zero_padding(&[0, 0, 7, 0, 8], 3),
        Some(&[7, 0, 8][..])
    );
    assert_eq!(strip_zero_padding(&[7, 0], 0), Some(&[7, 0][..]));
}

#[test]
fn padding_of_a_block_or_more_is_refused() {
    let mut pcluster = [0; 8192];
    pcluster[4096] = 1;
    assert_eq!(strip_zero_padding(&pcluster, 4095), None);
    pcluster[4095] = 1;
    assert_eq!(strip_zero_padding(&pcluster, 4095), Some(&pcluster[4095..]));
}

#[test]
fn zeros_alone_are_no_stream() {
    assert_eq!(strip_zero_padding(&[0; 16], 4095), None);
    assert_eq!(strip_zero_padding(&[], 4095), None);
}

#[test]
fn a_stream_moves_to_the_end() {
    let mut pcluster = *b"abcXXXXX";
    right_align(&mut pcluster, 3);
    assert_eq!(&pcluster, b"\0\0\0\0\0abc");
    right_align(&mut pcluster, 8);
    assert_eq!(&pcluster, b"\0\0\0\0\0abc");
    right_align(&mut pcluster, 0);
    assert_eq!(&pcluster, &[0; 8]);
}
