//! The target `launches`.

use anteros_log::Launches;

/// States where a record has its checksum.
const CRC: std::ops::Range<usize> = 12..16;

/// Reads the bytes as a record of launches, as they are and with the checksum made right: what is taken comes back as it
/// was, and goes on.
pub fn launches(input: &[u8]) {
    go_on(input);
    let mut sealed = input.to_vec();
    if let Some(crc) = sealed.get_mut(CRC) {
        crc.fill(0);
        let crc = crc32c::crc32c(&sealed);
        sealed[CRC].copy_from_slice(&crc.to_le_bytes());
        go_on(&sealed);
    }
}

fn go_on(record: &[u8]) {
    let mut launches = match Launches::parse(record) {
        Ok(launches) => launches,
        Err(fault) => return assert!(!fault.to_string().is_empty()),
    };
    assert_eq!(Launches::parse(&launches.encode()).as_ref(), Ok(&launches));
    let files: Vec<_> = launches.files().collect();
    for (ino, version) in files {
        let before = launches.reads(ino, version).expect("a file of the record");
        assert!(before.core.is_sorted() && before.other.is_sorted());
        launches.note(ino, version, 0..2, 0);
        let after = launches.reads(ino, version).expect("as before");
        // One more launch, unless there were enough, and none of it is new.
        let known = || before.core.iter().chain(&before.other);
        let is_new = (0..2).any(|lblk| known().all(|read| read.lblk != lblk));
        let has_enough = before.rounds >= launches.rounds();
        let may_stay = has_enough && !is_new || before.rounds == u8::MAX;
        let begun = after.rounds.checked_sub(before.rounds);
        assert!(begun == Some(1) || begun == Some(0) && may_stay);
    }
    assert!(Launches::parse(&launches.encode()).is_ok());
}
