//! Requests as bytes, against a file system in memory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use zerocopy::IntoBytes;

use super::dispatcher::FOREVER;
use super::*;
use crate::init::READ_LEN_MAX;
use crate::memory::{ACL, MemoryFs, ROOT, STEP, crowd_name, pattern};
use crate::proto::own::OwnOut;
use crate::proto::{AttrOut, Dirent, LseekIn, LseekOut, ROOT_ID, SEEK_DATA, SEEK_HOLE};

const CROWD: u64 = 1000;

struct Bench {
    dispatcher: Dispatcher,
    out: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let dispatcher = Dispatcher::new(Arc::new(MemoryFs::sample(CROWD)));
        Self {
            dispatcher,
            out: vec![0xee; READ_LEN_MAX],
        }
    }

    fn node(&self, ino: u64) -> u64 {
        self.dispatcher.nodes.node(Ino(ino)).unwrap()
    }

    /// Sends a request and returns the payload of the reply.
    fn ask(&mut self, opcode: u32, nodeid: u64, body: &[u8]) -> Result<&[u8], Errno> {
        let mut request = Request::from(&request(opcode, nodeid, body)[..]);
        let reply = self
            .dispatcher
            .answer(&mut request, &mut self.out)
            .expect("a reply");
        assert_eq!(reply.unique, 77);
        reply.payload.map(|len| &self.out[..len])
    }

    fn lookup(&mut self, parent: u64, name: &str) -> Result<EntryOut, Errno> {
        let body = [name.as_bytes(), b"\0"].concat();
        self.ask(op::LOOKUP, parent, &body).map(exactly)
    }

    fn read_dir(&mut self, opcode: u32, nodeid: u64, offset: u64, size: u32) -> Vec<Record> {
        let head_len = if opcode == op::READDIRPLUS {
            size_of::<EntryOut>()
        } else {
            0
        };
        let page = self
            .ask(opcode, nodeid, read_in(offset, size).as_bytes())
            .unwrap();
        assert!(page.len() <= size as usize);
        records(page, head_len)
    }
}

struct Record {
    node: u64,
    ino: u64,
    next: u64,
    name: Vec<u8>,
}

fn records(mut page: &[u8], head_len: usize) -> Vec<Record> {
    let mut records = Vec::new();
    while !page.is_empty() {
        let (head, rest) = page.split_at(head_len);
        let (dirent, rest) = Dirent::read_from_prefix(rest).unwrap();
        let (name, _) = rest.split_at(dirent.namelen as usize);
        let node = EntryOut::read_from_prefix(head).map_or(0, |(entry, _)| entry.nodeid);
        records.push(Record {
            node,
            ino: dirent.ino,
            next: dirent.off,
            name: name.into(),
        });
        page = &rest[name.len().next_multiple_of(8)..];
    }
    records
}

fn request(opcode: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + body.len()) as u32;
    let header = InHeader {
        len,
        opcode,
        unique: 77,
        nodeid,
        ..InHeader::new_zeroed()
    };
    [header.as_bytes(), body].concat()
}

fn read_in(offset: u64, size: u32) -> ReadIn {
    ReadIn {
        offset,
        size,
        ..ReadIn::new_zeroed()
    }
}

fn xattr_request(size: u32, name: &[u8]) -> Vec<u8> {
    [XattrSize { size, padding: 0 }.as_bytes(), name].concat()
}

fn exactly<T: FromBytes>(payload: &[u8]) -> T {
    T::read_from_bytes(payload).expect("the payload has the size of its struct")
}

/// Each opcode that takes arguments, with the least it takes and an inode it fits.
fn well_formed() -> Vec<(u32, u64, Vec<u8>)> {
    let seek = LseekIn {
        whence: SEEK_DATA,
        ..LseekIn::new_zeroed()
    };
    vec![
        (op::LOOKUP, ROOT.0, b"hello\0".into()),
        (op::READ, 40, read_in(0, 4096).as_bytes().into()),
        (op::READDIR, ROOT.0, read_in(0, 4096).as_bytes().into()),
        (op::READDIRPLUS, ROOT.0, read_in(0, 4096).as_bytes().into()),
        (op::GETXATTR, 1, xattr_request(0, b"user.colour\0")),
        (op::LISTXATTR, 1, xattr_request(0, b"")),
        (op::LSEEK, 41, seek.as_bytes().into()),
    ]
}

#[test]
fn requests_cut_short_are_refused_at_every_length() {
    let mut bench = Bench::new();
    for (opcode, ino, body) in well_formed() {
        let node = bench.node(ino);
        bench
            .ask(opcode, node, &body)
            .unwrap_or_else(|e| panic!("opcode {opcode}: {e}"));
        for len in 0..body.len() {
            let answer = bench.ask(opcode, node, &body[..len]).map(<[u8]>::len);
            assert_eq!(
                answer,
                Err(Errno::INVAL),
                "opcode {opcode}, {len} bytes of arguments"
            );
        }
    }
}

#[test]
fn a_length_that_lies_is_refused() {
    let bench = Bench::new();
    for (opcode, ino, body) in well_formed() {
        let mut request = request(opcode, bench.node(ino), &body);
        request.push(0);
        let reply = bench
            .dispatcher
            .answer(&mut Request::from(&request[..]), &mut [0; 4096])
            .unwrap();
        assert_eq!(
            reply,
            Reply {
                unique: 77,
                payload: Err(Errno::INVAL),
                written: None,
            },
            "opcode {opcode}"
        );
    }
}

#[test]
fn half_a_header_cannot_be_answered() {
    let bench = Bench::new();
    let request = request(op::GETATTR, ROOT_ID, &[]);
    for len in 0..request.len() {
        assert_eq!(
            bench
                .dispatcher
                .answer(&mut Request::from(&request[..len]), &mut [0; 4096]),
            None,
            "{len} bytes"
        );
    }
}

#[test]
fn no_opcode_and_no_bytes_make_it_panic_or_overrun() {
    let mut bench = Bench::new();
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    for round in 0..20_000 {
        let body: Vec<u8> = (0..random() % 80)
            .map(|_| (random() & random()) as u8)
            .collect();
        let nodeid = [0, 1, 40, 50, 404, u64::MAX, random()][random() as usize % 7];
        let opcode = (random() % 60) as u32;
        let request = request(opcode, nodeid, &body);
        if let Some(Reply {
            payload: Ok(len), ..
        }) = bench
            .dispatcher
            .answer(&mut Request::from(&request[..]), &mut bench.out)
        {
            assert!(len <= bench.out.len(), "round {round}, opcode {opcode}");
        }
    }
}

#[test]
fn a_reply_that_does_not_fit_is_an_error() {
    let bench = Bench::new();
    for (opcode, ino, body) in [
        (op::GETATTR, 1, vec![]),
        (op::STATFS, ROOT.0, vec![]),
        (op::READLINK, 42, vec![]),
        (op::LOOKUP, ROOT.0, b"hello\0".to_vec()),
        (op::READ, 40, read_in(0, 8).as_bytes().into()),
        (op::READDIR, ROOT.0, read_in(0, 8).as_bytes().into()),
        (op::GETXATTR, 1, xattr_request(9, b"user.colour\0")),
    ] {
        let request = request(opcode, bench.node(ino), &body);
        let reply = bench
            .dispatcher
            .answer(&mut Request::from(&request[..]), &mut [0; 3])
            .unwrap();
        assert_eq!(reply.payload, Err(Errno::INVAL), "opcode {opcode}");
    }
}

#[test]
fn lookup_finds_what_is_there_and_remembers_what_is_not() {
    let mut bench = Bench::new();
    for (name, ino) in [
        ("hello", 1),
        ("zero", 0),
        ("high", 1 << 63 | 5),
        (".", 36),
        ("..", 36),
    ] {
        let entry = bench.lookup(ROOT_ID, name).unwrap();
        assert_eq!((entry.attr.ino, entry.generation), (ino, 0), "{name}");
        assert_eq!(entry.nodeid, bench.node(ino), "{name}");
        assert_eq!(
            (entry.entry_valid, entry.attr_valid),
            (FOREVER.as_secs(), FOREVER.as_secs()),
            "{name}"
        );
    }
    let crowd = bench.node(50);
    assert_eq!(bench.lookup(crowd, "..").unwrap().nodeid, ROOT_ID);
    let absent = bench.lookup(ROOT_ID, "absent").unwrap();
    assert_eq!(
        absent,
        EntryOut {
            entry_valid: FOREVER.as_secs(),
            ..EntryOut::new_zeroed()
        }
    );
}

#[test]
fn lookup_refuses_what_has_no_answer() {
    let mut bench = Bench::new();
    assert_eq!(bench.lookup(ROOT_ID, ""), Err(Errno::INVAL));
    assert_eq!(
        bench.lookup(ROOT_ID, &"x".repeat(256)),
        Err(Errno::NAMETOOLONG)
    );
    assert_eq!(bench.lookup(ROOT_ID, &"x".repeat(255)).unwrap().nodeid, 0);
    assert_eq!(bench.lookup(0, "hello"), Err(Errno::INVAL));
    assert_eq!(
        bench.lookup(ROOT_ID, "nowhere"),
        Err(Errno::IO),
        "the inode without a node"
    );
    let file = bench.node(40);
    assert_eq!(bench.lookup(file, "hello"), Err(Errno::NOTDIR));
    assert_eq!(
        bench.lookup(file, ".").unwrap().nodeid,
        file,
        "file handles ask this"
    );
}

#[test]
fn attributes_arrive_whole() {
    let mut bench = Bench::new();
    let node = bench.node(43);
    let AttrOut {
        attr_valid, attr, ..
    } = exactly(bench.ask(op::GETATTR, node, &[]).unwrap());
    assert_eq!(attr_valid, FOREVER.as_secs());
    assert_eq!(attr.mode, 0o020_666);
    assert_eq!(attr.rdev, 0x0103);
    assert_eq!((attr.mtime as i64, attr.mtimensec), (-1, 250_000_000));
    assert_eq!((attr.atime, attr.ctime), (attr.mtime, attr.mtime));
    assert_eq!(
        (attr.nlink, attr.uid, attr.gid, attr.blksize),
        (1, 0, 0, 4096)
    );
    assert_eq!(bench.ask(op::GETATTR, 404, &[]), Err(Errno::NOENT));
}

#[test]
fn reads_fill_the_reply_in_place() {
    let mut bench = Bench::new();
    let node = bench.node(40);
    let content = pattern(5_000_001);
    for (offset, size, len) in [
        (0, 4096, 4096),
        (1, 1 << 20, 1 << 20),
        (5_000_000, 4096, 1),
        (5_000_001, 4096, 0),
        (u64::MAX, 1, 0),
    ] {
        let read = bench
            .ask(op::READ, node, read_in(offset, size).as_bytes())
            .unwrap();
        assert_eq!(read.len(), len, "at {offset}");
        assert!(
            content
                .get(offset as usize..)
                .unwrap_or_default()
                .starts_with(read)
        );
    }
    let too_much = read_in(0, (1 << 20) + 1);
    assert_eq!(
        bench.ask(op::READ, node, too_much.as_bytes()),
        Err(Errno::INVAL)
    );
}

#[test]
fn listings_resume_anywhere_and_never_repeat() {
    let mut bench = Bench::new();
    let node = bench.node(50);
    for (opcode, size) in [
        (op::READDIR, 280),
        (op::READDIR, 4096),
        (op::READDIRPLUS, 280),
        (op::READDIRPLUS, 32768),
    ] {
        let mut names = Vec::new();
        let mut from = 0;
        loop {
            let page = bench.read_dir(opcode, node, from, size);
            let Some(last) = page.last() else { break };
            from = last.next;
            names.extend(page.into_iter().map(|record| record.name));
        }
        assert_eq!(names[..2], [b".".to_vec(), b"..".to_vec()]);
        assert!(
            names[2..].iter().cloned().eq((0..CROWD).map(crowd_name)),
            "pages of {size}"
        );
        let resumed = bench.read_dir(opcode, node, 500 * STEP, size);
        assert_eq!(resumed[0].name, crowd_name(498));
    }
}

#[test]
fn a_page_too_small_for_one_name_is_no_end_of_directory() {
    let mut bench = Bench::new();
    for (opcode, least) in [(op::READDIR, 32), (op::READDIRPLUS, 160)] {
        let small = read_in(0, least - 1);
        assert_eq!(
            bench.ask(opcode, ROOT_ID, small.as_bytes()),
            Err(Errno::INVAL)
        );
        assert_eq!(bench.read_dir(opcode, ROOT_ID, 0, least).len(), 1);
    }
}

#[test]
fn readdirplus_knows_the_nodes_it_can() {
    let mut bench = Bench::new();
    for record in bench.read_dir(op::READDIRPLUS, ROOT_ID, 0, 32768) {
        let expected = match &record.name[..] {
            b"." | b".." | b"lost" | b"nowhere" => 0,
            _ => bench.node(record.ino),
        };
        assert_eq!(
            record.node,
            expected,
            "{}",
            String::from_utf8_lossy(&record.name)
        );
    }
}

#[test]
fn attributes_are_probed_then_fetched() {
    let mut bench = Bench::new();
    let node = bench.node(1);
    let mut get = |size, name: &[u8]| {
        bench
            .ask(op::GETXATTR, node, &xattr_request(size, name))
            .map(<[u8]>::to_vec)
    };
    assert_eq!(
        exactly::<XattrSize>(&get(0, b"user.colour\0").unwrap()).size,
        4
    );
    assert_eq!(get(3, b"user.colour\0"), Err(Errno::RANGE));
    assert_eq!(get(4, b"user.colour\0").unwrap(), b"blue");
    assert_eq!(get(4, b"user.empty\0").unwrap(), b"");
    assert_eq!(get(256, b"system.posix_acl_access\0").unwrap(), ACL);
    assert_eq!(get(256, b"user.colou\0"), Err(Errno::NODATA));
    let list = b"user.colour\0user.empty\0system.posix_acl_access\0";
    let mut list_at = |size| {
        bench
            .ask(op::LISTXATTR, node, &xattr_request(size, b""))
            .map(<[u8]>::to_vec)
    };
    assert_eq!(
        exactly::<XattrSize>(&list_at(0).unwrap()).size as usize,
        list.len()
    );
    assert_eq!(list_at(46), Err(Errno::RANGE));
    assert_eq!(list_at(47).unwrap(), list);
}

#[test]
fn seeking_tells_data_from_holes() {
    let mut bench = Bench::new();
    let mut seek = |ino, offset, whence| {
        let node = bench.node(ino);
        let args = LseekIn {
            offset,
            whence,
            ..LseekIn::new_zeroed()
        };
        bench
            .ask(op::LSEEK, node, args.as_bytes())
            .map(|out| exactly::<LseekOut>(out).offset)
    };
    assert_eq!(seek(41, 0, SEEK_HOLE), Ok(65536));
    assert_eq!(seek(41, 65536, SEEK_DATA), Ok(1 << 20));
    assert_eq!(seek(41, 1 << 20, SEEK_HOLE), Ok(3 << 19));
    assert_eq!(seek(41, 3 << 19, SEEK_DATA), Err(Errno::NXIO));
    assert_eq!(seek(41, 0, 0), Err(Errno::INVAL));
    assert_eq!(seek(48, 0, SEEK_HOLE), Ok(4096));
    assert_eq!(
        seek(48, 4096, SEEK_DATA),
        Err(Errno::NXIO),
        "nothing but a hole to the end"
    );
}

#[test]
fn faults_are_told_in_words_and_answered_with_errno() {
    let faults = Arc::new(Mutex::new(Vec::new()));
    let mut bench = Bench::new();
    let log = faults.clone();
    bench.dispatcher.set_fault_hook(Box::new(move |ino, error| {
        log.lock().unwrap().push((ino.0, error.to_string()));
    }));
    let read = read_in(0, 16);
    for (ino, errno) in [
        (44, Errno::IO),
        (45, Errno::IO),
        (46, Errno::IO),
        (50, Errno::ISDIR),
        (42, Errno::INVAL),
    ] {
        let node = bench.node(ino);
        assert_eq!(
            bench.ask(op::READ, node, read.as_bytes()),
            Err(errno),
            "inode {ino}"
        );
    }
    let faults = faults.lock().unwrap();
    assert_eq!(faults[0], (44, "inode 44: of course".into()));
    assert_eq!(
        faults.iter().map(|(ino, _)| *ino).collect::<Vec<_>>(),
        [44, 45]
    );
}

#[test]
fn broken_structures_are_told_from_content_that_cannot_be_had() {
    let mut bench = Bench::new();
    let node = bench.node(44);
    let seek = LseekIn {
        whence: SEEK_DATA,
        ..LseekIn::new_zeroed()
    };
    let read = read_in(0, 16);
    assert_eq!(bench.ask(op::READ, node, read.as_bytes()), Err(Errno::IO));
    assert_eq!(
        bench.ask(op::LSEEK, node, seek.as_bytes()),
        Err(Errno::UCLEAN)
    );
}

#[test]
fn files_are_opened_by_their_loan_or_to_be_cached() {
    let mut bench = Bench::new();
    bench.dispatcher = Dispatcher::new(Arc::new(MemoryFs::lending(CROWD)));
    let (lent, other) = (bench.node(40), bench.node(41));
    assert_eq!(bench.ask(op::OPEN, lent, &[0; 8]), Err(Errno::NOSYS));
    for granted in [Some(7), None] {
        bench.dispatcher.set_lender(Box::new(move |ino, _| {
            assert_eq!(ino, Ino(40));
            granted
        }));
        let mut open = |node| {
            let out: OpenOut = exactly(bench.ask(op::OPEN, node, &[0; 8]).unwrap());
            (out.open_flags, out.backing_id)
        };
        let cached = (1 << 1 | 1 << 5, 0);
        assert_eq!(
            open(lent),
            granted.map_or(cached, |id| (1 << 7 | 1 << 5, id))
        );
        assert_eq!(open(other), cached);
    }
}

fn own_request(cmd: u32, value: u32, offset: u32) -> Vec<u8> {
    let head = IoctlIn {
        cmd,
        in_size: own::ARGUMENT_BYTES as u32,
        out_size: own::ARGUMENT_BYTES as u32,
        ..IoctlIn::new_zeroed()
    };
    let asked = OwnIn::new(value, offset, b"user.own").unwrap();
    [head.as_bytes(), asked.as_bytes()].concat()
}

/// The kernel asks for no attribute of any file any more; of the mount itself it does by another way.
#[test]
fn without_attributes_those_of_the_mount_are_told_by_an_ioctl() {
    let fs = Arc::new(MemoryFs::sample(CROWD));
    fs.hides_xattrs.store(true, Ordering::Relaxed);
    let mut dispatcher = Dispatcher::new(fs);
    dispatcher.set_attribute_hook(Box::new(|asked| {
        (asked.name == b"user.own" && asked.ino == ROOT).then(|| vec![5; 9000])
    }));
    let out = vec![0; READ_LEN_MAX];
    let mut bench = Bench { dispatcher, out };
    let node = bench.node(1);
    let colour = xattr_request(9, b"user.colour\0");
    assert_eq!(bench.ask(op::GETXATTR, node, &colour), Err(Errno::NOSYS));
    let list = xattr_request(0, b"");
    assert_eq!(bench.ask(op::LISTXATTR, node, &list), Err(Errno::NOSYS));
    let own = xattr_request(10_000, b"user.own\0");
    assert_eq!(bench.ask(op::GETXATTR, ROOT_ID, &own).unwrap(), [5; 9000]);

    let head_len = size_of::<IoctlOut>() + size_of::<OwnOut>();
    let first = own_request(own::COMMAND, 0, 0);
    let told = bench.ask(op::IOCTL, ROOT_ID, &first).unwrap();
    assert_eq!(told[head_len..], [5; own::PIECE_BYTES]);
    let rest = own_request(own::COMMAND, 1, own::PIECE_BYTES as u32);
    let told = bench.ask(op::IOCTL, ROOT_ID, &rest).unwrap();
    assert_eq!(told[head_len..], [5; 9000 - own::PIECE_BYTES]);
    assert_eq!(bench.ask(op::IOCTL, node, &first), Err(Errno::NODATA));
    assert_eq!(
        bench.ask(op::IOCTL, ROOT_ID, &first[..40]),
        Err(Errno::INVAL)
    );
    let other = own_request(7, 0, 0);
    assert_eq!(bench.ask(op::IOCTL, ROOT_ID, &other), Err(Errno::NOTTY));
}

#[test]
fn writing_is_refused_and_the_unknown_is_unknown() {
    let mut bench = Bench::new();
    // SETATTR SYMLINK MKNOD MKDIR UNLINK RMDIR RENAME LINK WRITE SETXATTR REMOVEXATTR CREATE
    // FALLOCATE RENAME2 COPY_FILE_RANGE TMPFILE COPY_FILE_RANGE_64
    for opcode in [
        4, 6, 8, 9, 10, 11, 12, 13, 16, 21, 24, 35, 43, 45, 47, 51, 53,
    ] {
        assert_eq!(
            bench.ask(opcode, ROOT_ID, &[]),
            Err(Errno::ROFS),
            "opcode {opcode}"
        );
    }
    // OPEN FSYNC FLUSH INIT OPENDIR FSYNCDIR GETLK ACCESS BMAP POLL SYNCFS STATX
    for opcode in [
        0,
        14,
        20,
        25,
        26,
        27,
        30,
        31,
        34,
        37,
        40,
        50,
        52,
        54,
        4096,
        u32::MAX,
    ] {
        assert_eq!(
            bench.ask(opcode, ROOT_ID, &[]),
            Err(Errno::NOSYS),
            "opcode {opcode}"
        );
    }
    // RELEASE RELEASEDIR DESTROY
    for opcode in [18, 29, 38] {
        assert_eq!(
            bench.ask(opcode, ROOT_ID, &[]),
            Ok(&[][..]),
            "opcode {opcode}"
        );
    }
    // FORGET INTERRUPT BATCH_FORGET
    for opcode in [2, 36, 42] {
        let request = request(opcode, ROOT_ID, &[0; 16]);
        assert_eq!(
            bench
                .dispatcher
                .answer(&mut Request::from(&request[..]), &mut bench.out),
            None,
            "opcode {opcode}"
        );
    }
}

#[test]
fn statfs_and_symlinks() {
    let mut bench = Bench::new();
    let stat: StatfsOut = exactly(bench.ask(op::STATFS, 0, &[]).unwrap());
    assert_eq!(
        (stat.blocks, stat.bsize, stat.frsize, stat.namelen),
        (1234, 4096, 4096, 255)
    );
    let node = bench.node(42);
    assert_eq!(
        bench.ask(op::READLINK, node, &[]),
        Ok(&b"crowd/../hello"[..])
    );
    assert_eq!(bench.ask(op::READLINK, ROOT_ID, &[]), Err(Errno::INVAL));
}

#[test]
fn every_errno_is_one_the_kernel_takes() {
    let bench = Bench::new();
    for error in [
        FsError::NotFound,
        FsError::NotDirectory,
        FsError::IsDirectory,
        FsError::Invalid,
        FsError::NoData,
        FsError::BeyondEnd,
        FsError::Unsupported,
        FsError::Corrupt(String::new()),
        FsError::Io(std::io::Error::from_raw_os_error(512)),
    ] {
        let errno = bench.dispatcher.errno(ROOT, &error).raw_os_error();
        assert!((1..512).contains(&errno), "{error:?} is {errno}");
    }
}
