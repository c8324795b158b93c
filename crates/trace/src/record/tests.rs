use super::*;

const BEGUN: Duration = Duration::from_nanos(1_700_000_000_123_456_789);

fn access(operation: Operation, at: u64, file: u64) -> Access {
    let has_range = operation != Operation::Fsync;
    Access {
        at: Duration::from_nanos(at),
        took: Duration::from_nanos(u64::MAX),
        operation,
        file,
        pid: u32::MAX,
        offset: if has_range { OFFSET_MAX } else { 0 },
        len: if has_range { u32::MAX.into() } else { 0 },
        modes: if has_range { 3 } else { 0 },
        error: 5,
    }
}

/// A record with one of everything, in two blocks and a closed end.
fn sample() -> Vec<u8> {
    let mut record = header(UNIX_EPOCH + BEGUN);
    let mut block = Block::new();
    block.file(0, u64::MAX, b"/a/b");
    block.process(7, b"dd");
    block.access(&access(Operation::Write, u64::MAX, 0));
    block.access(&access(Operation::Read, 0, 0));
    record.extend(block.finish().as_bytes());
    block.file(0, u64::MAX, b"/renamed");
    block.file(1, 2, b"");
    block.access(&access(Operation::Fsync, 1000, 1));
    block.dropped(9);
    block.end(Duration::from_secs(2));
    record.extend(block.finish().as_bytes());
    record
}

/// Returns what a record holds, in words, with its end.
fn told(record: &[u8]) -> (Vec<String>, Result<Ending, (u64, Fault)>) {
    let mut items = Vec::new();
    let read = read(record, &mut |item| items.push(format!("{item:?}")));
    let ending = read.map(|(_, ending)| ending).map_err(|error| match error {
        Error::Corrupt { at, fault } => (at, fault),
        Error::Io(error) => panic!("{error}"),
    });
    (items, ending)
}

/// A record of one block with this content.
fn framed(payload: &[u8]) -> Vec<u8> {
    let mut record = header(UNIX_EPOCH);
    record.extend((payload.len() as u32).to_le_bytes());
    record.extend(crc32c::crc32c(payload).to_le_bytes());
    record.extend(payload);
    record
}

#[test]
fn what_was_written_is_read() {
    let mut items = Vec::new();
    let (header, ending) = read(&sample()[..], &mut |item| {
        items.push(match item {
            Item::File { number, ino, path } => format!("{number} {ino} {}", path.escape_ascii()),
            item => format!("{item:?}"),
        });
    })
    .unwrap();
    assert_eq!((header.started, ending), (BEGUN, Ending::Closed));
    let item = |item: Item<'_>| format!("{item:?}");
    let wanted = [
        format!("0 {} /a/b", u64::MAX),
        item(Item::Process {
            pid: 7,
            name: b"dd",
        }),
        item(Item::Access(access(Operation::Write, u64::MAX, 0))),
        item(Item::Access(access(Operation::Read, 0, 0))),
        format!("0 {} /renamed", u64::MAX),
        "1 2 ".to_owned(),
        item(Item::Access(access(Operation::Fsync, 1000, 1))),
        item(Item::Dropped(9)),
        item(Item::End(Duration::from_secs(2))),
    ];
    assert_eq!(items, wanted);
}

/// Wherever a record is cut off, what is whole is told, and the rest by its place.
#[test]
fn a_record_cut_anywhere_says_so() {
    let record = sample();
    let (all, _) = told(&record);
    let first_len = FRAME_LEN + word(&record[HEADER_LEN..]) as usize;
    let second = HEADER_LEN + first_len;
    for len in 0..record.len() {
        let (items, ending) = told(&record[..len]);
        let (at, whole) = match len {
            len if len < HEADER_LEN => {
                let (at, fault) = ending.unwrap_err();
                assert!(at as usize <= len, "{len}: {fault}");
                assert!(items.is_empty());
                continue;
            }
            len if len < second => (HEADER_LEN, 0),
            _ => (second, 4),
        };
        assert_eq!(items, all[..whole], "{len}");
        let found = (len - at) as u64;
        match ending.unwrap() {
            Ending::Open => assert_eq!(found, 0, "{len}"),
            Ending::CutShort {
                at: place,
                wanted,
                found: there,
            } => assert_eq!((place, there, wanted > there), (at as u64, found, true)),
            Ending::Closed => panic!("{len}: closed"),
        }
    }
}

/// No byte can be changed without notice, but for the time in the header and what is reserved there.
#[test]
fn a_changed_byte_is_noticed() {
    let record = sample();
    let (all, _) = told(&record);
    for at in (0..12).chain(HEADER_LEN..record.len()) {
        for change in [1, 0x80, 0xff] {
            let mut record = record.clone();
            record[at] ^= change;
            let (items, ending) = told(&record);
            assert!(all.starts_with(&items), "{at}");
            // A block that seems longer is one that is cut short.
            let is_noticed = matches!(ending, Err(_) | Ok(Ending::CutShort { .. }));
            assert!(is_noticed, "byte {at}, {change:#x}: {ending:?}");
        }
    }
}

#[test]
fn every_fault_is_named_with_its_place() {
    let number = [0xff; 9];
    let number_of = |tag, last: &[u8]| [&[tag][..], &number, last].concat();
    let file = [tag::FILE, 0, 1, 0];
    let with_file = |access: &[u8]| [&file[..], access].concat();
    let inside = (HEADER_LEN + FRAME_LEN) as u64;
    let behind = inside + file.len() as u64;
    for (payload, at, said) in [
        (vec![0], inside, "the unknown kind 0"),
        (vec![tag::END + 1], inside, "the unknown kind 8"),
        (vec![tag::DROPPED], inside, "ends within its block"),
        (vec![tag::DROPPED, 0x80], inside, "ends within its block"),
        (number_of(tag::DROPPED, &[2]), inside, "at most 64 bits"),
        (
            number_of(tag::DROPPED, &[0x81, 0]),
            inside,
            "at most 64 bits",
        ),
        (
            vec![tag::FILE, 1, 1, 0],
            inside,
            "the number of a file is 1, more than 0",
        ),
        (
            vec![tag::FILE, 0, 1, 5, b'a'],
            inside,
            "a name of 5 bytes, of which 1",
        ),
        (
            vec![tag::PROCESS, 0, 0xff, 0xff, 1],
            inside,
            "the length of a name is 32767, more than 4096",
        ),
        (
            [&number_of(tag::PROCESS, &[1])[..], &[0]].concat(),
            inside,
            "the process is 18446744073709551615, more than 4294967295",
        ),
        (
            vec![tag::FSYNC, 0, 0, 0, 0, 0],
            inside,
            "an access to file 0",
        ),
        (
            with_file(&[tag::FSYNC, 0, 0, 1, 0, 0]),
            behind,
            "an access to file 1",
        ),
        (
            with_file(&[&[tag::READ, 0, 0, 0, 0, 0][..], &number, &[1, 1, 0]].concat()),
            behind,
            "the offset is 18446744073709551615",
        ),
        (
            with_file(&[&[tag::WRITE, 0, 0, 0, 0, 0, 0][..], &number, &[1, 0]].concat()),
            behind,
            "the length is 18446744073709551615, more than 4294967295",
        ),
        (vec![tag::END, 0, tag::END, 0], inside + 2, "behind the end"),
    ] {
        let record = framed(&payload);
        let error = read(&record[..], &mut |_| {}).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("byte {at}: ")),
            "{payload:?}: {error}"
        );
        assert!(error.contains(said), "{payload:?}: {error}");
    }
}

#[test]
fn what_is_no_record_or_no_block_is_named() {
    let mut long = header(UNIX_EPOCH);
    long.extend([0xff; 8]);
    let mut empty = header(UNIX_EPOCH);
    empty.extend([0; 8]);
    let mut later = header(UNIX_EPOCH);
    later[8] = 2;
    let mut more = sample();
    more.push(0);
    for (record, said) in [
        (vec![], "no record of anteros"),
        (
            b"#!/bin/sh\nexit 0\n".to_vec(),
            "it begins with \"#!/bin/s\"",
        ),
        (MAGIC.to_vec(), "24 bytes, of which 8 are there"),
        (later, "version 2"),
        (long, "byte 24: a block of 4294967295 bytes"),
        (empty, "byte 24: a block of 0 bytes"),
        (more, "there is more behind the end"),
    ] {
        let error = read(&record[..], &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
