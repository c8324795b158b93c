use super::*;
use std::sync::atomic::AtomicBool;

use anteros_image::{CheckOptions, check};

#[test]
fn sparse_terabytes_are_no_work() {
    let image = Fixture::read("lz4hc-extended").extended("data/noise", |inode| {
        inode.i_format = 1.into();
        inode.i_u = u32::MAX.into();
        inode.i_nb = u16::MAX.into();
        inode.i_size = (1 << 40).into();
    });
    assert_eq!(image.clone().sealed().faults(), [] as [&str; 0]);
    assert_eq!(image.extents("data/noise").len(), 1);
}

#[test]
fn directories_that_claim_terabytes() {
    let image = Fixture::read("lz4hc-extended").extended("many", |inode| {
        inode.i_format = 1.into();
        inode.i_u = u32::MAX.into();
        inode.i_nb = u16::MAX.into();
        inode.i_size = (1 << 40).into();
    });
    check_finds(
        &image,
        "the rest of the directory was not read, 64 of its blocks being broken",
    );
}

#[test]
fn extents_on_one_pcluster_are_decoded_once() {
    let image = Fixture::read("ztailpacking-full");
    let whole = image.check().data_bytes;
    let image = second_extent_from_first(image);
    let second = image.extents("data/words")[1].len;
    assert_eq!(image.check().data_bytes, whole - second);
    assert_eq!(image.faults(), [] as [&str; 0]);
}

#[test]
fn budgets_end_with_a_word() {
    let image = Fixture::read("lz4").open().unwrap();
    for work_bytes_max in [0, 1000, 10_000, 100_000] {
        let options = CheckOptions {
            work_bytes_max,
            ..CheckOptions::default()
        };
        let report = check(&image, &options, &(), &AtomicBool::new(false));
        let words = format!("image: the rest was not checked: {work_bytes_max} bytes of work");
        assert!(
            report
                .findings
                .iter()
                .any(|f| f.to_string().starts_with(&words))
        );
        assert!(!report.is_clean());
    }
}

#[test]
fn findings_beyond_the_most_are_counted() {
    let mut image = Fixture::read("lz4");
    image.bytes.truncate(image.bytes.len() / 2);
    let all = image.check().findings.len();
    let options = CheckOptions {
        findings_max: 1,
        ..CheckOptions::default()
    };
    let report = check(
        &image.open().unwrap(),
        &options,
        &(),
        &AtomicBool::new(false),
    );
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings_omitted as usize >= all - 1);
}

#[test]
fn cancelled_checks_say_so() {
    let image = Fixture::read("lz4").open().unwrap();
    let report = check(
        &image,
        &CheckOptions::default(),
        &(),
        &AtomicBool::new(true),
    );
    assert!(report.cancelled && !report.is_clean());
}

#[test]
fn directories_that_repeat_themselves_are_given_up() {
    let image = Fixture::read("plain");
    let block = (image.data_offset("many") / 4096) as u32;
    let blocks = 200;
    let mut dir = file_inode(DataLayout::ChunkBased, blocks * 4096);
    dir.i_mode = 0o040_755.into();
    let table = block.to_le_bytes().repeat(blocks as usize);
    let image = image.with_inode("deep/1", &[dir.as_bytes(), &table].concat());
    assert_eq!(image.map("deep/1").map(|_| ()).ok(), Some(()));
    check_finds(
        &image,
        "(/deep/1): the rest of the directory was not read, 64 of its blocks being broken",
    );
}

/// An LZ4 block of `total` bytes that repeat eight, right-aligned in whole blocks.
fn repeated(eight: [u8; 8], total: usize) -> Vec<u8> {
    // A match of all but the first and the last eight bytes; its token and two length bytes tell 19.
    let more = total - 16 - 19;
    let lengths = [vec![255; more / 255], vec![(more % 255) as u8]].concat();
    let stream = [&[0x8f], &eight[..], &[8, 0], &lengths, &[0x80], &eight].concat();
    let padding = stream.len().next_multiple_of(4096) - stream.len();
    [vec![0; padding], stream].concat()
}

/// An image in which the index of the only file lies in a metabox, most of which is one pcluster
/// over and over: every lcluster is an extent on the same block.
fn endless_index(lclusters: u64) -> Fixture {
    const HALF: u64 = 2 << 20;
    let mut sb = RawSuperblock::new_zeroed();
    sb.magic = MAGIC.into();
    sb.blkszbits = 12;
    sb.sb_extslots = 1;
    let features = Incompat::ZERO_PADDING | Incompat::FORTY_EIGHT_BIT | Incompat::METABOX;
    sb.feature_incompat = features.bits().into();
    sb.rootnid_8b = (1 << 63).into();
    let metabox_nid = 4096 / 32u64;

    let entry = Lcluster::Head {
        kind: HeadKind::Head1,
        clusterofs: 0,
        block: 3,
        partial: false,
    };
    let entry: [u8; 8] = entry.encode_full().as_bytes().try_into().unwrap();
    let index = repeated(entry, HALF as usize);

    let mut file = file_inode(DataLayout::CompressedFull, lclusters * 4096);
    file.i_u = 1.into();
    let front = [file.as_bytes(), &[0; 16], &entry.repeat(502)].concat();
    assert_eq!(front.len(), 4096);

    let metabox = file_inode(DataLayout::CompressedFull, 4096 + 2 * HALF);
    let header = RawMapHeader {
        h_fragmentoff: 3.into(),
        h_advise: (ADVISE_EXTENTS | 2 << 1).into(),
        h_algorithmtype: 0,
        h_clusterbits: 0,
    };
    let record = |plen: u32, pstart: u32, lstart: u64| {
        [plen, pstart, 0, lstart as u32]
            .map(u32::to_le_bytes)
            .concat()
    };
    let lz4 = 1 << 28 | index.len() as u32;
    let records = [
        record(4096, 2 * 4096, 0),
        record(lz4, 4 * 4096, 4096),
        record(lz4, 4 * 4096, 4096 + HALF),
    ];
    let metabox = [
        metabox.as_bytes(),
        header.as_bytes(),
        &[0; 8],
        &records.concat(),
    ]
    .concat();

    let data = repeated([7; 8], 4096);
    let bytes = [vec![0; 4 * 4096], index].concat();
    let fixture = Fixture {
        bytes,
        extra: None,
        extra_count: 0,
    };
    fixture
        .put(SUPERBLOCK_OFFSET as usize, sb.as_bytes())
        .put(SUPERBLOCK_OFFSET as usize + 128, &metabox_nid.to_le_bytes())
        .put(4096, &metabox)
        .put(2 * 4096, &front)
        .put(3 * 4096, &data)
}

#[test]
fn extents_without_number_are_as_much_work_as_their_pcluster() {
    // More than a worker of a check keeps before it looks for those that are the same.
    let lclusters = (1 << 18) + (1 << 17);
    let report = endless_index(lclusters).check();
    assert_eq!(report.extents, lclusters + 3);
    // One block for the file; of the metabox the front, and one of two equal halves.
    assert_eq!(report.data_bytes, 4096 + 4096 + (2 << 20));
    for finding in &report.findings {
        let words = finding.to_string();
        assert!(
            words.contains("the root is a file")
                || words.contains("inodes are recorded")
                || words.contains("that are recorded"),
            "{words}"
        );
    }
}
