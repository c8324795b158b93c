//! The target `open`.

use anteros_image::{Image, OpenOptions};

use super::image::{open_image, open_with};

/// Opens the bytes with the checksum verified and not. Whoever verifies it is never content with more.
pub fn open(input: &[u8]) {
    let image = open_image(input);
    match (&image, open_with(input, OpenOptions::default())) {
        (Err(_), Ok(_)) => panic!("only the one who verifies the checksum opens it"),
        (Ok(image), Ok(verified)) => assert_eq!(image.superblock(), verified.superblock()),
        _ => {}
    }
    match image {
        Ok(image) => look_around(&image),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Asks for all that is known once an image is open.
fn look_around(image: &Image) {
    let sb = image.superblock();
    assert_eq!(image.devices().len(), 1 + usize::from(sb.extra_devices));
    assert!(image.xattr_prefixes().len() <= sb.xattr_prefix_count.into());
    assert!((9..=16).contains(&sb.block_bits));
    // Fails where the root is broken, which opening does not look at.
    let _ = image.root();
}
