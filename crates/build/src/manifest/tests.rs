//! Tests manifests of a few lines.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;

use anteros_core::FileKind;
use tempfile::TempDir;

use super::*;

const MTREE: ManifestFormat = ManifestFormat::Mtree;
const DUMP: ManifestFormat = ManifestFormat::ComposefsDump;

/// Hears warnings.
#[derive(Default)]
struct Heard(RefCell<Vec<String>>);

impl Observer for Heard {
    fn warn(&self, path: &Path, text: &str) {
        let line = format!("{}: {text}", path.display());
        self.0.borrow_mut().push(line);
    }
}

/// A directory of content: files `a` and `d/b`, a symbolic link `l` to `d`, and a pipe `p`.
fn content() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), "hello").unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/b"), "world!").unwrap();
    symlink("d", dir.path().join("l")).unwrap();
    symlink("/etc/passwd", dir.path().join("passwd")).unwrap();
    let mode = rustix::fs::Mode::from(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("p"), fifo, mode, 0).unwrap();
    dir
}

fn scanned(
    format: ManifestFormat,
    text: &[u8],
    root: Option<&Path>,
    heard: &Heard,
) -> Result<Scanned, Error> {
    let never = AtomicBool::new(false);
    let manifest = Manifest::from_reader(format, "list", text);
    let manifest = match root {
        Some(root) => manifest.content_root(root),
        None => manifest,
    };
    scan(manifest, &Options::default(), heard, &never)
}

/// The tree of a manifest, a line for each name.
fn listing(format: ManifestFormat, text: &str) -> String {
    let dir = content();
    let heard = Heard::default();
    let found = scanned(format, text.as_bytes(), Some(dir.path()), &heard).unwrap();
    let warnings = heard.0.into_inner();
    assert!(warnings.is_empty(), "{warnings:?}");
    let mut lines = String::new();
    list(&found, 0, "", &mut lines);
    lines
}

fn list(found: &Scanned, id: u32, path: &str, lines: &mut String) {
    let Scanned { source, tree, .. } = found;
    let node = tree.node(id);
    let kind = node.kind.name();
    let time = format!("{}.{:09}", node.mtime.secs, node.mtime.nanos);
    let (perm, uid, gid) = (node.perm, node.uid, node.gid);
    write!(
        lines,
        "{path}/ {kind} {perm:o} {uid}:{gid} {} {time}",
        node.nlink
    )
    .unwrap();
    match node.kind {
        FileKind::Regular => {
            let mut content = vec![0; node.size as usize];
            let file = source.open_file(tree, id).unwrap();
            file.read(0, &mut content).unwrap();
            file.finish().unwrap();
            write!(lines, " `{}`", content.escape_ascii()).unwrap();
        }
        FileKind::CharDevice | FileKind::BlockDevice => write!(lines, " {:#x}", node.rdev).unwrap(),
        _ => {}
    }
    for xattr in tree.xattrs.of(&node.xattrs) {
        let (name, value) = (xattr.name().escape_ascii(), xattr.value().escape_ascii());
        write!(lines, " {name}={value}").unwrap();
    }
    let target = tree.name(node.target).escape_ascii();
    writeln!(lines, "{target}").unwrap();
    for entry in tree.entries_of(id) {
        let name = tree.name(entry.name).escape_ascii();
        list(found, entry.node, &format!("{path}/{name}"), lines);
    }
}

fn check(format: ManifestFormat, text: &str, expected: &str) {
    let lines = expected.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty());
    let expected: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(listing(format, text), expected);
}

/// The error for a manifest.
fn refused(format: ManifestFormat, text: &[u8], root: Option<&Path>) -> String {
    let found = scanned(format, text, root, &Heard::default());
    found.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn directories_are_entered_and_left() {
    check(
        MTREE,
        r"#mtree
/set type=file uid=5 gid=6 mode=0600 nlink=1 time=7.000000008
.            type=dir mode=0755
    a        size=5 \
             mode=0644

    d        type=dir mode=0700
        b    uid=8 time=-9.5
    ..
    s        type=link mode=0777 link=a\040b
/unset uid time
    n\M-C\M-)w type=char device=linux,1,3
..
",
        r"/ directory 755 5:6 3 7.000000008
          /a/ file 644 5:6 1 7.000000008 `hello`
          /d/ directory 700 5:6 2 7.000000008
          /d/b/ file 600 8:6 1 -9.000000005 `world!`
          /n\xc3\xa9w/ char device 600 0:6 1 0.000000000 0x103
          /s/ symlink 777 5:6 1 7.000000008a b
"
        .replace("char device", "character device")
        .as_str(),
    );
}

#[test]
fn paths_stand_anywhere() {
    check(
        MTREE,
        "./x/y/z type=file contents=./d/b mode=04755 optional
         ./x/missing type=file optional
         ./x type=dir mode=711 uname=root gname=root
         ./first type=file contents=a nlink=2 inode=5 resdevice=native,0,27
         ./second type=file contents=a nlink=2 inode=5 resdevice=native,0,27
         ./third type=file contents=a nlink=2 inode=5 resdevice=native,0,28
         ./disk type=block device=native,259,70000 mode=0660
         type=fifo mode=0600 ./last
         ./disk2 type=block device=0x801 mode=0100660
         ./fifo type=fifo mode=0640
         ./socket type=socket xattr.user.a\\040b=AAEK xattrs.user.empty=",
        "/ directory 755 0:0 3 0.000000000
         /disk/ block device 660 0:0 1 0.000000000 0x11110370
         /disk2/ block device 660 0:0 1 0.000000000 0x801
         /fifo/ fifo 640 0:0 1 0.000000000
         /first/ file 644 0:0 2 0.000000000 `hello`
         /last/ fifo 600 0:0 1 0.000000000
         /second/ file 644 0:0 2 0.000000000 `hello`
         /socket/ socket 644 0:0 1 0.000000000 user.a b=\\x00\\x01\\n user.empty=
         /third/ file 644 0:0 1 0.000000000 `hello`
         /x/ directory 711 0:0 3 0.000000000
         /x/y/ directory 755 0:0 2 0.000000000
         /x/y/z/ file 4755 0:0 1 0.000000000 `world!`",
    );
}

#[test]
fn dumps_tell_all() {
    check(
        DUMP,
        r"/ 0 40755 3 1 2 0 3.4 - - - user.a=b\x3dc\x00
/link 0 @100644 2 0 0 0 0.0 /d/told - -
/d 0 40700 2 0 0 0 0.0 - - -
/d/told 6 100644 2 0 0 0 5.0 - a\x20\\b\n\r - trusted.empty=
/d/b 6 104755 1 0 0 0 6.0 d/b - -
/d/sp\x20ace 0 100600 1 0 0 0 0.0 - - -
/l 3 120777 1 0 0 0 0.0 x\ty - -
/null 0 20666 1 0 0 259 0.0 - - -
/disk 0 60660 1 0 0 286327664 0.0 - - -
/fifo 0 10640 1 4294967295 0 0 -1.999999999 - - -
",
        r"/ directory 755 1:2 3 3.000000004 user.a=b=c\x00
          /d/ directory 700 0:0 2 0.000000000
          /d/b/ file 4755 0:0 1 6.000000000 `world!`
          /d/sp ace/ file 600 0:0 1 0.000000000 ``
          /d/told/ file 644 0:0 2 5.000000000 `a \\b\n\r` trusted.empty=
          /disk/ block device 660 0:0 1 0.000000000 0x11110370
          /fifo/ fifo 640 4294967295:0 1 -1.999999999
          /l/ symlink 777 0:0 1 0.000000000x\ty
          /link/ file 644 0:0 2 5.000000000 `a \\b\n\r` trusted.empty=
          /null/ character device 666 0:0 1 0.000000000 0x103",
    );
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let dir = content();
    let mtree = [
        ("a type=file size=4", "list:2: the size is 4, but"),
        (
            "a type=file size=-4",
            "the size is `-4`, which is no number",
        ),
        (
            "a type=file size=99999999999999999999",
            "which is no number",
        ),
        (
            "a type=file mode=9",
            "the mode is `9`, which is no octal number",
        ),
        ("a type=file mode=u=rw", "the mode is `u=rw`"),
        ("a type=file mode=1000000", "of more than 16 bits"),
        (
            "a type=file uid=4294967296",
            "the uid is 4294967296, which is beyond 32 bits",
        ),
        (
            "a type=file uname=nobody-has-this",
            "the uname `nobody-has-this` is unknown",
        ),
        (
            "a type=file time=1.1000000000",
            "the time is `1.1000000000`",
        ),
        ("a type=file time=x", "the time is `x`"),
        ("a type=file time", "`time` has no value"),
        ("a", "`a` has no type"),
        ("a type=door", "the type is `door`, which is unknown"),
        (
            "a type=file\na type=file",
            "list:3: `a` is listed a second time",
        ),
        (
            "a type=file\n./a/b type=dir",
            "it lies in `a`, which is a file",
        ),
        ("..", "list:2: `..` leads out of the root"),
        ("./x/../../y type=dir", "`..` in the path `./x/../../y`"),
        ("\\056\\056 type=dir", "`..` in the path `..`"),
        ("./a\\000b type=dir", "a NUL in the path `./a\\x00b`"),
        ("/etc/passwd type=file", "`/etc/passwd` is absolute"),
        (
            "x type=file contents=/etc/passwd",
            "the content `/etc/passwd` is absolute",
        ),
        ("x type=file contents=../x", "`..` in the path `../x`"),
        (
            "x type=file contents=passwd",
            "a symbolic link is on the way, and none is followed",
        ),
        (
            "x type=file contents=l/b",
            "a symbolic link is on the way, and none is followed",
        ),
        (
            "x type=file contents=d",
            "is a directory, and no regular file",
        ),
        ("x type=file contents=p", "is a fifo, and no regular file"),
        ("x type=file", "cannot find"),
        ("x type=char", "a device without `device`"),
        ("x type=char device=1,2,3,4", "the device is `1,2,3,4`"),
        (
            "x type=char device=linux,4096,1",
            "device 4096:1; 4095:1048575 is the last",
        ),
        ("x type=link", "a symbolic link without `link`"),
        ("x type=link link=a\\000b", "a NUL in `a\\x00b`"),
        (
            "a type=file sha256=00",
            "`00` is no digest of SHA-256, which has 64",
        ),
        ("a\\q type=file", "`\\q` is no escape that is known"),
        (
            "a type=file xattr.user.a=!",
            "the attribute `user.a`: its value is no base64",
        ),
        ("d type=dir\n. type=dir", "list:3: `.` within a directory"),
    ];
    for (lines, said) in mtree {
        let text = format!("#mtree\n{lines}\n");
        let found = refused(MTREE, text.as_bytes(), Some(dir.path()));
        assert!(found.contains(said), "{found}, and not {said}");
    }
    let deep = "d type=dir\n".repeat(2049);
    let found = refused(MTREE, deep.as_bytes(), None);
    assert!(found.contains("list:2049: a path of 4097 bytes"), "{found}");
    let long = format!("/set a={}", "x".repeat(16 << 10));
    let found = refused(MTREE, long.as_bytes(), None);
    assert!(found.contains("list:1: `/set` with 16385 bytes"), "{found}");
    let zeros = "0".repeat(64);
    let told = format!("a type=file sha256={zeros}");
    let found = refused(MTREE, told.as_bytes(), Some(dir.path()));
    let hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let said = format!("the SHA-256 digest is {zeros}, but that of the content is {hello}");
    assert!(found.contains(&said), "{found}");
    let found = refused(MTREE, b"a type=file size=5", None);
    assert!(
        found.contains("name the directory that it lies in"),
        "{found}"
    );
    let root = "/ 0 40755 2 0 0 0 0.0 - - -\n";
    let digest = format!("/a 5 100644 1 0 0 0 0.0 a - {zeros}");
    for (line, said) in [
        (
            "/a 0 100644 1 0 0 0 0.0 - -",
            "list:2: a line of 10 fields; 11 are the least",
        ),
        ("", "a line of 1 fields"),
        (
            "a 0 100644 1 0 0 0 0.0 - - -",
            "the path `a` does not begin at /",
        ),
        ("/../a 0 100644 1 0 0 0 0.0 - - -", "`..` in the path"),
        (
            "/x/a 0 100644 1 0 0 0 0.0 - - -",
            "`/x/a` lies in a directory that is not listed",
        ),
        (
            "/a 0 644 1 0 0 0 0.0 - - -",
            "the mode is 644, of no known kind",
        ),
        (
            "/a 0 4294967296100644 1 0 0 0 0.0 - - -",
            "is no octal number",
        ),
        (
            "/a 3 100644 1 0 0 0 0.0 - ab -",
            "the size is 3, but the content that the line",
        ),
        (
            "/a 1 100644 1 0 0 0 0.0 - - -",
            "the size is 1, but the content that the line",
        ),
        (
            "/a 1 100644 1 0 0 0 0.0 a b -",
            "with a payload and with content",
        ),
        (
            "/a 5 100644 1 0 0 0 0.0 /a - -",
            "the payload `/a` is absolute",
        ),
        (
            "/a 5 100644 1 0 0 0 0.0 ../a - -",
            "`..` in the path `../a`",
        ),
        (
            "/a 0 120777 1 0 0 0 0.0 - - -",
            "a symbolic link without a payload",
        ),
        (
            "/a 0 @100644 1 0 0 0 0.0 /b - -",
            "a hard link to `b`, which is not listed",
        ),
        (
            "/a 0 @100644 1 0 0 0 0.0 / - -",
            "a hard link to `.`, a directory",
        ),
        (
            "/a 0 @100644 1 0 0 0 0.0 - - -",
            "a hard link without a payload",
        ),
        (
            "/a 0 20666 1 0 0 18446744073709551615 0.0 - - -",
            "4095:1048575 is the last",
        ),
        (
            "/a 0 100644 1 0 0 0 0.0 - - - user.a",
            "the attribute `user.a` has no `=`",
        ),
        (
            "/a 0 100644 1 0 0 0 0.0 - - - user.\\x00=",
            "a NUL in `user.\\x00`",
        ),
        ("/a\\040 0 100644 1 0 0 0 0.0 - - -", "`\\040` is no escape"),
        (&digest, "the fs-verity digest is 000"),
        (root.trim_end(), "list:2: `` is listed a second time"),
    ] {
        let text = format!("{root}{line}\n");
        let found = refused(DUMP, text.as_bytes(), Some(dir.path()));
        assert!(found.contains(said), "{found}, and not {said}");
    }
}

#[test]
fn what_is_left_out_is_told_once() {
    let heard = Heard::default();
    let text = "/set flags=none\nx type=dir md5=0 new=1\ny type=dir md5=0 flags=uchg\n";
    let found = scanned(MTREE, text.as_bytes(), None, &heard).unwrap();
    let heard = heard.0.into_inner();
    assert_eq!((found.warnings, heard.len()), (3, 3), "{heard:?}");
    assert!(
        heard[0].starts_with("list:2: sums of the kind `md5`"),
        "{heard:?}"
    );
}

/// Changes each byte of some manifests, and cuts them anywhere: what comes of it is a tree or a line with its number.
#[test]
fn changed_manifests_are_read_or_refused() {
    let dir = content();
    let mtree = "#mtree\n/set type=file uid=0\n. type=dir\n a size=5 mode=0644 time=1.5\\\n nlink=2 inode=3\n d type=dir\n  \
        b sha256=00 contents=d/b\n ..\n./n\\040\\M-C type=char device=linux,1,3\n./l type=link link=x xattr.user.a=AAA=\n..\n";
    let dump = "/ 0 40755 3 1 2 0 3.4 - - - user.a=b\\x3dc\n/a 0 @100644 2 0 0 0 0.0 /b - -\n/b 5 100644 2 0 0 0 5.0 a - -\n\
        /c 1 100644 1 0 0 0 5.0 - x -\n/l 3 120777 1 0 0 0 0.0 x\\ty - -\n/n 0 20666 1 0 0 259 0.0 - - -\n";
    for (format, text) in [(MTREE, mtree), (DUMP, dump)] {
        let text = text.as_bytes();
        let try_it = |text: &[u8]| {
            let heard = Heard::default();
            if let Err(error) = scanned(format, text, Some(dir.path()), &heard) {
                let error = error.to_string();
                assert!(
                    error.starts_with("list:"),
                    "{error}: {}",
                    text.escape_ascii()
                );
            }
        };
        for at in 0..text.len() {
            try_it(&text[..at]);
            for byte in [0, b' ', b'\n', b'\\', b'/', b'.', b'=', b'-', b'9', 0xff] {
                let mut changed = text.to_vec();
                changed[at] = byte;
                try_it(&changed);
            }
        }
    }
}
