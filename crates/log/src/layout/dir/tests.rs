use super::*;

const SEED: [u8; 16] = [3; 16];

fn entry(name: &[u8], ino: u32) -> OwnedEntry {
    OwnedEntry {
        hash: hash(name, &SEED),
        ino,
        kind: 8,
        name: name.into(),
    }
}

fn with_hash(hash: u64, name: &str) -> OwnedEntry {
    OwnedEntry {
        hash,
        ..entry(name.as_bytes(), 1)
    }
}

fn leaf(count: u32) -> Leaf {
    let mut leaf = Leaf::default();
    for number in 0..count {
        leaf.insert(entry(format!("file {number}").as_bytes(), number + 2))
            .unwrap();
    }
    leaf
}

fn refused<T>(result: Result<T, Corrupt>, word: &str) {
    let fault = result.err().expect("nothing was refused").to_string();
    assert!(fault.contains(word), "{word}: {fault}");
}

fn is_sorted(leaf: &Leaf) -> bool {
    leaf.entries
        .windows(2)
        .all(|pair| pair[0].as_entry().key() < pair[1].as_entry().key())
}

/// The block with a change of its head that the checksum knows of.
fn forged(block: &Block, break_it: impl Fn(&mut RawHeader)) -> Box<Block> {
    let mut raw = *header(block);
    break_it(&mut raw);
    let mut block = Box::new(*block);
    block[..HEADER_BYTES].copy_from_slice(raw.as_bytes());
    seal(&mut *block, CRC_AT);
    block
}

#[test]
fn the_hash_is_siphash_1_3_within_its_bounds() {
    // The reference vectors for the key 0, 1, … 15: no bytes.
    let key = std::array::from_fn(|at| at as u8);
    let reference = u64::from_le_bytes([0xdc, 0xc4, 0x0f, 0x05, 0x58, 0x01, 0xac, 0xab]);
    assert_eq!(hash(b"", &key), reference & HASH_MASK);
    for number in 0..1000 {
        let hash = hash(format!("{number}").as_bytes(), &key);
        assert!(hash >= LOWEST_HASH && hash & 0xff == 0 && i64::try_from(hash).is_ok());
    }
    assert_ne!(hash(b"a", &key), hash(b"a", &SEED));
}

#[test]
fn names_are_found_in_a_list_and_in_a_leaf() {
    let leaf = leaf(100);
    assert!(is_sorted(&leaf));
    let (inline, block) = (leaf.encode_inline(), leaf.encode().unwrap());
    check(&block, 0).unwrap();
    assert_eq!(Leaf::from_inline(&inline).unwrap(), leaf);
    assert_eq!(Leaf::parse(&block).unwrap(), leaf);
    for entry in &leaf.entries {
        let expected = Some((entry.ino, 8));
        assert_eq!(find(&block, entry.hash, &entry.name).unwrap(), expected);
        assert_eq!(
            find_inline(&inline, entry.hash, &entry.name).unwrap(),
            expected
        );
    }
    for absent in [&b"file 100"[..], b"file", b"x", &[b'y'; 255]] {
        let hash = hash(absent, &SEED);
        assert_eq!(find(&block, hash, absent).unwrap(), None);
        assert_eq!(find_inline(&inline, hash, absent).unwrap(), None);
    }
    assert_eq!(leaf_entries(&block).unwrap().count(), 100);
    assert_eq!(entries(&[]).count(), 0);
}

#[test]
fn entries_are_added_and_removed() {
    let mut leaf = leaf(10);
    let before = leaf.clone();
    let new = entry(b"new", 99);
    leaf.insert(new.clone()).unwrap();
    assert!(matches!(leaf.insert(new.clone()), Err(FsError::Exists)));
    assert!(is_sorted(&leaf));
    assert_eq!(leaf.remove(new.hash, b"new"), Some(new.clone()));
    assert_eq!(leaf.remove(new.hash, b"new"), None);
    assert_eq!(leaf, before);
}

/// Tests that a name leaves the bytes that it lies in as it leaves the entries that are made of them.
#[test]
fn a_name_is_taken_out_where_it_lies() {
    let whole = leaf(60);
    let (mut block, mut inline) = (whole.encode().unwrap(), whole.encode_inline());
    let mut left = whole.clone();
    let (even, odd) = (
        whole.entries.iter().step_by(2),
        whole.entries.iter().skip(1).step_by(2),
    );
    for entry in odd.chain(even) {
        for is_there in [true, false] {
            let removed = remove(&mut block, entry.hash, &entry.name);
            assert_eq!(removed.unwrap(), is_there);
            let removed = remove_inline(&mut inline, entry.hash, &entry.name);
            assert_eq!(removed.unwrap(), is_there);
        }
        left.remove(entry.hash, &entry.name).unwrap();
        assert_eq!(block, left.encode().unwrap());
        assert_eq!(inline, left.encode_inline());
    }
    assert!(inline.is_empty());
}

/// Tests that what is broken stays as it is found.
#[test]
fn a_name_is_not_taken_out_of_what_is_broken() {
    let leaf = leaf(5);
    let last = leaf.entries.last().unwrap();
    let broken = forged(&leaf.encode().unwrap(), |raw| raw.used = 30.into());
    let mut block = broken.clone();
    refused(remove(&mut block, last.hash, &last.name), "beyond the end");
    assert_eq!(block, broken);
    let bytes = leaf.encode_inline();
    let mut inline = bytes[..30].to_vec();
    refused(
        remove_inline(&mut inline, last.hash, &last.name),
        "beyond the end",
    );
    assert_eq!(inline, bytes[..30]);
}

#[test]
fn a_full_leaf_splits_about_in_half() {
    let mut leaf = Leaf::default();
    let mut number = 0;
    while leaf.encode().is_some() {
        number += 1;
        let name = format!("{number}").repeat(1 + number % 7);
        leaf.insert(entry(name.as_bytes(), 5)).unwrap();
    }
    let (left, right, first) = leaf.split().unwrap();
    let (left, right) = (Leaf::parse(&left).unwrap(), Leaf::parse(&right).unwrap());
    let bytes = |leaf: &Leaf| leaf.encode_inline().len();
    assert!(bytes(&left).abs_diff(bytes(&right)) < 64);
    assert_eq!(right.entries[0].hash, first);
    assert!(left.entries.iter().all(|entry| entry.hash < first));
    assert_eq!([left.entries, right.entries].concat(), leaf.entries);
}

#[test]
fn names_of_one_hash_stay_together() {
    let mut leaf = Leaf::default();
    leaf.insert(with_hash(0x100, "first")).unwrap();
    for number in 0..SAME_HASH_MAX {
        leaf.insert(with_hash(0x200, &format!("{number:x}")))
            .unwrap();
    }
    assert!(matches!(
        leaf.insert(with_hash(0x200, "more")),
        Err(FsError::NoSpace)
    ));
    assert_eq!(leaf.encode(), None, "255 entries of 16 bytes, and one more");
    let (left, right, first) = leaf.split().unwrap();
    assert_eq!(first, 0x200);
    assert_eq!(Leaf::parse(&left).unwrap().entries.len(), 1);
    assert_eq!(Leaf::parse(&right).unwrap().entries.len(), SAME_HASH_MAX);
    leaf.remove(0x100, b"first").unwrap();
    assert_eq!(leaf.split(), None);
}

#[test]
fn an_index_leads_to_the_block_of_a_hash() {
    let mut index = Index {
        level: 1,
        items: vec![(0, 4)],
    };
    for (first, block) in [(0x500, 7), (0x300, 5), (0x900, 6)] {
        index.insert(first, block);
    }
    assert_eq!(index.items, [(0, 4), (0x300, 5), (0x500, 7), (0x900, 6)]);
    let block = index.encode().unwrap();
    check(&block, 0).unwrap();
    assert_eq!(level(&block), 1);
    assert_eq!(Index::parse(&block).unwrap(), index);
    assert_eq!(child(&block, 0x100).unwrap(), (4, Some(0x300)));
    assert_eq!(child(&block, 0x300).unwrap(), (5, Some(0x500)));
    assert_eq!(child(&block, 0x800).unwrap(), (7, Some(0x900)));
    assert_eq!(child(&block, u64::MAX).unwrap(), (6, None));
}

#[test]
fn a_full_index_splits_in_half() {
    let mut index = Index {
        level: 2,
        items: Vec::new(),
    };
    assert_eq!((index.encode(), index.split()), (None, None));
    for number in 0..ROOM / ITEM_BYTES {
        index.insert(number as u64 * 0x100, 1 + number as u32);
    }
    assert!(index.encode().is_some());
    index.insert(1 << 40, 1000);
    assert_eq!(index.encode(), None);
    let (left, right, first) = index.split().unwrap();
    let (left, right) = (Index::parse(&left).unwrap(), Index::parse(&right).unwrap());
    assert_eq!((left.items.len(), right.items.len()), (170, 171));
    assert_eq!((right.items[0].0, right.level), (first, 2));
    assert_eq!([left.items, right.items].concat(), index.items);
}

#[test]
fn no_changed_byte_of_a_block_goes_unnoticed() {
    let index = Index {
        level: 1,
        items: vec![(0, 4), (0x300, 5)],
    };
    for mut block in [leaf(50).encode().unwrap(), index.encode().unwrap()] {
        for at in 0..BLOCK_BYTES {
            block[at] ^= 2;
            assert!(check(&block, 9).is_err(), "byte {at}");
            block[at] ^= 2;
        }
    }
}

#[test]
fn heads_that_cannot_be_are_refused() {
    let leaf = leaf(5).encode().unwrap();
    let index = Index {
        level: 1,
        items: vec![(0, 4), (0x300, 5)],
    }
    .encode()
    .unwrap();
    refused(
        check(&forged(&leaf, |raw| raw.magic = 0.into()), 7),
        "directory block 7: the magic",
    );
    refused(
        check(&forged(&leaf, |raw| raw.level = 4.into()), 7),
        "level",
    );
    refused(
        check(&forged(&leaf, |raw| raw.used = 4081.into()), 7),
        "than there are",
    );
    refused(
        check(&forged(&index, |raw| raw.count = 3.into()), 7),
        "items do not take",
    );
    refused(
        check(&forged(&index, |raw| raw.used = 0.into()), 7),
        "items do not take",
    );

    let used = |used: u16| forged(&leaf, move |raw| raw.used = used.into());
    refused(Leaf::parse(&used(u16::MAX)), "than a block has");
    refused(find(&used(u16::MAX), u64::MAX, b"x"), "than a block has");
    refused(find(&used(30), u64::MAX, b"x"), "beyond the end");
    refused(Leaf::parse(&used(30)), "beyond the end");
    refused(
        Leaf::parse(&forged(&leaf, |raw| raw.count = 4.into())),
        "more entries",
    );
    refused(
        Leaf::parse(&forged(&leaf, |raw| raw.count = 6.into())),
        "fewer entries",
    );
    refused(Leaf::parse(&index), "no leaf");
    refused(find(&index, 1, b"x"), "no leaf");
    refused(Index::parse(&leaf), "no index");
    refused(child(&leaf, 1), "no index");
    refused(
        child(&forged(&index, |raw| raw.count = u16::MAX.into()), 1),
        "room for",
    );
    refused(
        child(&forged(&index, |raw| raw.count = 0.into()), 1),
        "begins behind",
    );
    refused(
        Index::parse(&forged(&index, |raw| raw.count = 0.into())),
        "empty",
    );
}

#[test]
fn entries_that_cannot_be_are_refused() {
    let list = |list: &[OwnedEntry]| {
        Leaf {
            entries: list.to_vec(),
        }
        .encode_inline()
    };
    let good = with_hash(0x100, "a");
    let broken = [
        (
            "this hash",
            OwnedEntry {
                hash: 0,
                ..good.clone()
            },
        ),
        (
            "this hash",
            OwnedEntry {
                hash: 0x101,
                ..good.clone()
            },
        ),
        (
            "this hash",
            OwnedEntry {
                hash: 1 << 63,
                ..good.clone()
            },
        ),
        (
            "no inode",
            OwnedEntry {
                ino: 0,
                ..good.clone()
            },
        ),
        (
            "file type",
            OwnedEntry {
                kind: 0,
                ..good.clone()
            },
        ),
        (
            "file type",
            OwnedEntry {
                kind: 0x18,
                ..good.clone()
            },
        ),
        ("not possible", with_hash(0x100, "")),
        ("not possible", with_hash(0x100, "..")),
        ("not possible", with_hash(0x100, "a/b")),
        ("not possible", with_hash(0x100, "a\0")),
    ];
    for (word, entry) in broken {
        let bytes = list(std::slice::from_ref(&entry));
        refused(Leaf::from_inline(&bytes), word);
        assert_eq!(entries(&bytes).count(), 1);
        refused(find_inline(&bytes, entry.hash, &entry.name), word);
    }
    let later = with_hash(0x100, "b");
    for pair in [[later.clone(), good.clone()], [good.clone(), good.clone()]] {
        refused(Leaf::from_inline(&list(&pair)), "behind the one before");
    }
    refused(
        Leaf::from_inline(&list(&[with_hash(0x200, "a"), later])),
        "behind the one before",
    );
    let many: Vec<_> = (0..=SAME_HASH_MAX)
        .map(|n| with_hash(0x100, &format!("{n:03}")))
        .collect();
    refused(Leaf::from_inline(&list(&many)), "255 names");
    let bytes = list(&[good]);
    for end in 1..bytes.len() {
        refused(Leaf::from_inline(&bytes[..end]), "beyond the end");
        refused(find_inline(&bytes[..end], 0x100, b"a"), "beyond the end");
    }
}

#[test]
fn items_that_cannot_be_are_refused() {
    let index = |items: &[(u64, u32)]| encode_index(1, items).unwrap();
    refused(Index::parse(&index(&[(0, 1), (1, 2)])), "this hash");
    refused(
        Index::parse(&index(&[(0, 1), (0x200, 2), (0x200, 3)])),
        "behind the one before",
    );
    refused(
        Index::parse(&index(&[(0, 1), (0x200, 0)])),
        "root lies below",
    );
    refused(
        child(&index(&[(0, 1), (0x200, 0)]), 0x200),
        "root lies below",
    );
    refused(child(&index(&[(0x200, 3)]), 0x100), "begins behind");
}
