use super::*;

const FILE: &str = "data/words";
const CODECS: [(&str, Algorithm); 4] = [
    ("lz4hc-full-16k", Algorithm::Lz4),
    ("lzma", Algorithm::Lzma),
    ("deflate", Algorithm::Deflate),
    ("zstd", Algorithm::Zstd),
];

fn pcluster_bytes(image: &Fixture) -> usize {
    match image.extents(FILE)[0].source {
        Source::Pcluster(pcluster) => pcluster.bytes as usize,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pclusters_of_zeros() {
    for (name, _) in CODECS {
        let image = Fixture::read(name);
        let (at, bytes) = (image.data_offset(FILE), pcluster_bytes(&image));
        let image = image.put(at, &vec![0; bytes]);
        let fault = Corrupt::Padding { found: bytes };
        refused(image.content(FILE), data(&image, FILE, 0), fault);
        check_finds(
            &image,
            "(/data/words): the padding in front of the compressed stream is",
        );
    }
}

/// Checks what decoding says of a file after a change of its bytes.
#[track_caller]
fn undecodable(image: &Fixture, algorithm: Algorithm) {
    match image.content(FILE).unwrap_err() {
        Error::Decode { place, fault } => {
            assert_eq!((place, fault.algorithm), (data(image, FILE, 0), algorithm));
        }
        other => panic!("{other}"),
    }
    check_finds(image, &format!("(/data/words): {algorithm} stream of"));
}

#[test]
fn garbage() {
    for (name, algorithm) in CODECS {
        let image = Fixture::read(name);
        let (at, bytes) = (image.data_offset(FILE), pcluster_bytes(&image));
        undecodable(&image.put(at, &vec![0xff; bytes]), algorithm);
    }
}

#[test]
fn streams_longer_than_their_extent() {
    for (name, algorithm) in CODECS {
        let image = Fixture::read(name);
        assert_eq!(image.extents(FILE).len(), 1);
        undecodable(
            &image.compact(FILE, |inode| inode.i_size = 28130.into()),
            algorithm,
        );
    }
}

#[test]
fn streams_shorter_than_their_extent() {
    let image = Fixture::read("lz4hc-full-16k")
        .compact(FILE, |inode| inode.i_size = 28132.into())
        .index(FILE, 6, |entry| entry.di_clusterofs += 1);
    undecodable(&image, Algorithm::Lz4);
}

#[test]
fn lzma_properties_out_of_range() {
    let image = Fixture::read("lzma");
    let at = image.data_offset(FILE);
    let padding = image.bytes[at..]
        .iter()
        .position(|&byte| byte != 0)
        .unwrap();
    // The inverse of 225 and more; 224 would be lc 8, lp 4, pb 4, of which lc + lp is too much.
    for properties in [!224u8, !225, 1] {
        undecodable(
            &image.clone().put(at + padding, &[properties]),
            Algorithm::Lzma,
        );
    }
}

/// An image in which a file is all but the last byte of the only frame of `data/words`.
fn front_of_frame() -> Fixture {
    let image = Fixture::read("zstd");
    let extent = image.extents(FILE)[0];
    let lclusters = extent.len.div_ceil(4096) as u32;
    let blocks = pcluster_bytes(&image) as u32 / 4096;
    let head = Lcluster::Head {
        kind: HeadKind::Head1,
        clusterofs: 0,
        block: (image.data_offset(FILE) / 4096) as u32,
        partial: true,
    };
    let nonheads = (1..lclusters).map(|lcn| Lcluster::NonHead {
        back: lcn,
        ahead: lclusters - lcn,
        pcluster_blocks: (lcn == 1).then_some(blocks),
    });
    let index = std::iter::once(head).chain(nonheads);
    let index: Vec<u8> = index
        .flat_map(|entry| entry.encode_full().as_bytes().to_vec())
        .collect();
    let header = RawMapHeader {
        h_fragmentoff: 0.into(),
        h_advise: ADVISE_BIG_PCLUSTER_1.into(),
        h_algorithmtype: Algorithm::Zstd as u8,
        h_clusterbits: 0,
    };
    let inode = file_inode(DataLayout::CompressedFull, extent.len - 1);
    let inode = [inode.as_bytes(), header.as_bytes(), &[0; 8], &index].concat();
    image.with_inode(FILE, &inode)
}

#[test]
fn windows_larger_than_configured() {
    let payload = SUPERBLOCK_OFFSET as usize + 130;
    let image = Fixture::read("lzma").put(payload, &4096u32.to_le_bytes());
    undecodable(&image, Algorithm::Lzma);
    // A whole Zstandard frame is its own window; the front of one needs memory for it.
    let whole = Fixture::read("zstd").content(FILE).unwrap();
    let image = front_of_frame();
    assert_eq!(image.content(FILE).unwrap(), whole[..whole.len() - 1]);
    undecodable(&image.put(payload, &[0, 0]), Algorithm::Zstd);
}
