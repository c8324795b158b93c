use super::*;

/// Has records of 4 bytes.
const FIXED: &str = "48bit";
const FILE: &str = "data/words";

/// An image in which the file has two records of 16 bytes.
fn variable(change: impl FnOnce(&mut RawMapHeader, &mut [RawExtent; 2])) -> Fixture {
    let image = Fixture::read(FIXED);
    let plen = image.bytes[image.map_offset(FILE) + 16..][..8].to_vec();
    let plen = |i: usize| u32::from_le_bytes(plen[4 * i..][..4].try_into().unwrap());
    let mut header = RawMapHeader {
        h_fragmentoff: 2.into(),
        h_advise: (ADVISE_EXTENTS | 2 << 1).into(),
        h_algorithmtype: 0,
        h_clusterbits: 0,
    };
    let extents = image.extents(FILE);
    let mut records = [0, 1].map(|i| match extents[i].source {
        Source::Pcluster(pcluster) => RawExtent {
            plen: plen(i).into(),
            pstart_lo: (pcluster.location.address() as u32).into(),
            pstart_hi: 0.into(),
            lstart_lo: (extents[i].offset as u32).into(),
            lstart_hi: 0.into(),
            reserved: [0; 12],
        },
        other => panic!("{other:?}"),
    });
    change(&mut header, &mut records);
    let records = records
        .iter()
        .flat_map(|record| &record.as_bytes()[..16])
        .copied();
    let tail: Vec<u8> = header
        .as_bytes()
        .iter()
        .copied()
        .chain([0; 8])
        .chain(records)
        .collect();
    image.move_inode(FILE, &tail)
}

#[test]
fn records_of_16_bytes_are_sound() {
    let sound = Fixture::read(FIXED);
    let image = variable(|_, _| ()).sealed();
    assert_eq!(image.faults(), [] as [&str; 0]);
    assert_eq!(image.content(FILE).unwrap(), sound.content(FILE).unwrap());
}

fn first_length(image: Fixture, plen: u32) -> Fixture {
    let at = image.map_offset(FILE) + 16;
    image.put(at, &plen.to_le_bytes())
}

#[test]
fn lengths_that_mean_nothing() {
    // A zero behind the mask, reserved bits, a plain partial reference, more than 1 MiB.
    for plen in [0x0200_0000, 0x1020_0000 | 4096, 0x0800_1000, 0x1010_0001] {
        let image = first_length(Fixture::read(FIXED), plen);
        refused(
            image.try_extents(FILE),
            data(&image, FILE, 0),
            Corrupt::ExtentPlen { plen },
        );
    }
}

#[test]
fn unknown_algorithms() {
    let image = first_length(Fixture::read(FIXED), 0x5000_1000);
    let fault = Unsupported::Algorithm { id: 4 };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
    let image = first_length(Fixture::read(FIXED), 0x2000_1000);
    let fault = Corrupt::AlgorithmNotListed {
        name: Algorithm::Lzma,
    };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
}

#[test]
fn addresses_that_overflow() {
    let image = Fixture::read(FIXED);
    let at = image.map_offset(FILE) + 8;
    let image = image.put(at, &0xffff_ffff_ffdc_ffedu64.to_le_bytes());
    let fault = Corrupt::AddressOverflow {
        what: "its pcluster",
    };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
}

#[test]
fn addresses_outside_the_image() {
    let image = Fixture::read(FIXED);
    let at = image.map_offset(FILE) + 8;
    let image = image.put(at, &(1u64 << 40).to_le_bytes());
    refused_as(image.content(FILE), data(&image, FILE, 0), out_of_bounds);
    check_finds(&image, "its pcluster reaches byte 0x100");
}

#[test]
fn file_offsets_that_do_not_ascend_from_zero() {
    let first = variable(|_, records| records[0].lstart_lo = 5.into());
    let fault = Corrupt::ExtentOrder {
        index: 0,
        start: 5,
        lower: 0,
        upper: 0,
    };
    refused(first.try_extents(FILE), data(&first, FILE, 0), fault);
    for start in [0, 28131, u32::MAX] {
        let image = variable(|_, records| records[1].lstart_lo = start.into());
        check_finds(
            &image,
            &format!("encoded extent 1 begins at {start}, which is not between"),
        );
    }
}

#[test]
fn more_records_than_bytes_or_none() {
    for count in [0, u32::MAX] {
        let image = variable(|header, _| header.h_fragmentoff = count.into());
        let nid = image.inode(FILE).nid;
        let fault = Corrupt::ExtentCount {
            count: count.into(),
            size: 28131,
        };
        refused(image.map(FILE), Place::Inode(nid), fault);
    }
}

#[test]
fn plain_extents_longer_than_their_pcluster() {
    let image = first_length(Fixture::read(FIXED), 100);
    let fault = Corrupt::PlainLength {
        offset: 0,
        len: 16384,
        encoded: 100,
    };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
}

#[test]
fn pclusters_larger_than_their_extent() {
    let image = first_length(Fixture::read(FIXED), 4 << 28 | 20_000);
    check_finds(
        &image,
        "the extent at 0 is compressed to 20000 bytes, more blocks than its 16384 bytes fill",
    );
}

#[test]
fn pclusters_over_the_superblock() {
    let image = variable(|_, records| records[0].pstart_lo = 0.into());
    let fault = Corrupt::PclusterAtZero { offset: 0 };
    refused(image.try_extents(FILE), data(&image, FILE, 0), fault);
}

#[test]
fn records_beyond_the_image() {
    let image = variable(|header, _| header.h_fragmentoff = 20_000.into());
    check_finds(&image, "(/data/words): its metadata reaches byte");
}

/// An image in which the file has two plain extents in pclusters of whole blocks, the second one
/// from byte 5000 on with this pcluster, or what follows its first `misaligned` bytes.
fn plain_extents(second: &[u8], misaligned: u32) -> Fixture {
    let (image, block) = variable(|_, _| ()).append(&[vec![7; 8192], second.to_vec()].concat());
    let at = image.map_offset(FILE);
    let record = |plen: u32, pstart: u32, lstart: u32| {
        [plen, pstart, 0, lstart].map(u32::to_le_bytes).concat()
    };
    let start = block * 4096;
    let records = [
        record(8192, start, 0),
        record(
            second.len() as u32 - misaligned,
            start + 8192 + misaligned,
            5000,
        ),
    ];
    image
        .edit(at, |header: &mut RawMapHeader| {
            header.h_advise |= ADVISE_INTERLACED_PCLUSTER
        })
        .put(at + 16, &records.concat())
}

#[test]
fn interlaced_pclusters_of_many_blocks_are_rotated() {
    let content = Fixture::read(FIXED).content(FILE).unwrap();
    let second = &content[5000..];
    // Each byte at its offset in the block: the front up to a block's end goes to the very end.
    let front = 4096 - 5000 % 4096;
    let mut pcluster = vec![0; 24576];
    pcluster[..second.len() - front].copy_from_slice(&second[front..]);
    pcluster[24576 - front..].copy_from_slice(&second[..front]);
    let image = plain_extents(&pcluster, 0);
    let Source::Pcluster(found) = image.extents(FILE)[1].source else {
        panic!("it is encoded");
    };
    assert_eq!(found.encoding, Encoding::Interlaced);
    assert_eq!(image.content(FILE).unwrap()[5000..], *second);
    assert_eq!(image.sealed().faults(), [] as [&str; 0]);
}

#[test]
fn interlaced_pclusters_that_are_not_aligned_are_plain() {
    let content = Fixture::read(FIXED).content(FILE).unwrap();
    let second = &content[5000..];
    let mut pcluster = vec![0; 24576];
    pcluster[8..8 + second.len()].copy_from_slice(second);
    let image = plain_extents(&pcluster, 8);
    let Source::Pcluster(found) = image.extents(FILE)[1].source else {
        panic!("it is encoded");
    };
    assert_eq!(found.encoding, Encoding::Plain);
    assert_eq!(image.content(FILE).unwrap()[5000..], *second);
}
