use anteros_core::Sorter;

use super::*;

fn part(address: u64, nid: u64, what: What) -> Part {
    Part {
        location: Location::Device { device: 0, address },
        bytes: 4096,
        place: Place::Inode(Nid(nid)),
        what,
    }
}

#[test]
fn plain_extents_may_be_blocks_of_flat_files() {
    let encoded = |encoding| {
        What::Encoded(Encoded {
            len: 4096,
            encoding,
            partial: false,
            inline: false,
        })
    };
    let flat = Part {
        bytes: 12_000,
        ..part(4096, 1, What::Flat)
    };
    let plain = part(8192, 2, encoded(Encoding::Plain));
    let lz4 = Encoding::Compressed(anteros_core::Algorithm::Lz4);
    assert!(flat.may_share(&plain) && plain.may_share(&flat));
    assert!(!flat.may_share(&part(8192, 2, encoded(lz4))));
}

#[test]
fn what_files_share_is_kept_once() {
    let encoded = |len, encoding| {
        What::Encoded(Encoded {
            len,
            encoding,
            partial: false,
            inline: false,
        })
    };
    let whole = encoded(9000, Encoding::Compressed(anteros_core::Algorithm::Lz4));
    let shorter = encoded(8000, Encoding::Compressed(anteros_core::Algorithm::Lz4));
    let other = encoded(9000, Encoding::Compressed(anteros_core::Algorithm::Zstd));
    let mut sorter = Sorter::new(0);
    for nid in [3, 1, 2] {
        for what in [whole, other, shorter, What::Chunk, What::Flat] {
            sorter.push(part(4096, nid, what)).unwrap();
        }
    }
    let parts = sorter.finish().unwrap();
    let parts = parts.iter().map(Result::unwrap);
    let kept: Vec<_> = parts.map(|part| (part.what, part.nid())).collect();
    let first = Some(Nid(1));
    let expected = [
        (whole, first),
        (other, first),
        (shorter, first),
        (What::Flat, first),
        (What::Chunk, first),
    ];
    assert_eq!(kept, expected);
}
