//! Images in what is no file: a sink has the bytes that a file has.

use std::fs;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anteros_build::{
    Codec, Compression, Effort, Error, Fragments, HashAlgorithm, HashTree, Options, build,
    build_into, build_stream,
};
use tempfile::TempDir;

/// A source with what compresses, what does not, and what seems to at first.
fn source() -> TempDir {
    let source = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(source.path().join(name), bytes).unwrap();
    let mut state = 7_u64;
    let mut noise = vec![0; 9 << 20];
    for byte in &mut noise {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        *byte = (state >> 56) as u8;
    }
    write("noise", &noise);
    noise[..1 << 20].fill(b'x');
    write("half", &noise);
    write("text", "some text\n".repeat(100_000).as_bytes());
    write("small", b"small");
    source
}

fn options() -> Vec<Options> {
    let lz4 = Compression {
        pcluster_bytes: 65_536,
        segment_bytes: 1 << 20,
        min_gain_percent: 20,
        ..Compression::new(Effort::Fast)
    };
    let all = [
        Options::default(),
        Options {
            compression: Some(lz4),
            ..Options::default()
        },
        Options {
            compression: Some(lz4),
            fragments: Some(Fragments::default()),
            wide: true,
            ..Options::default()
        },
        Options {
            compression: Some(Compression::new(Codec::Deflate { level: 1 })),
            metabox: None,
            workers: 1,
            ..Options::default()
        },
    ];
    all.to_vec()
}

#[test]
fn a_sink_has_the_bytes_of_the_file() {
    let source = source();
    let target = TempDir::new().unwrap();
    let path = target.path().join("image");
    let cancel = AtomicBool::new(false);
    for options in options() {
        let built = build(&path, source.path(), &options, &(), &cancel).unwrap();
        let file = fs::read(&path).unwrap();
        let mut sink = Cursor::new(b"before".to_vec());
        sink.seek(SeekFrom::End(0)).unwrap();
        let other = build_into(&mut sink, source.path(), &options, &(), &cancel).unwrap();
        assert_eq!(other, built);
        assert_eq!(sink.position(), 6 + built.image_bytes);
        let sink = sink.into_inner();
        let (image, rest) = sink.split_at(6 + file.len());
        assert!(
            image.starts_with(b"before") && image[6..] == file,
            "{options:?}"
        );
        assert!(rest.iter().all(|byte| *byte == 0));
        let mut stream = Vec::new();
        build_stream(&mut stream, source.path(), &options, &(), &cancel).unwrap();
        assert!(stream == file, "{options:?}");
    }
}

/// A sink that fails behind some bytes.
struct Short(u64, Cursor<Vec<u8>>);

impl Write for Short {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.1.position() >= self.0 {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.1.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Short {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.1.seek(to)
    }
}

#[test]
fn a_sink_that_fails_says_why() {
    let source = source();
    for room in [0, 5000, 4 << 20] {
        let mut sink = Short(room, Cursor::default());
        let cancel = AtomicBool::new(false);
        let failed = build_into(&mut sink, source.path(), &Options::default(), &(), &cancel);
        match failed.unwrap_err() {
            Error::Image {
                path,
                action,
                cause,
            } => {
                assert_eq!((path.as_path(), action), (Path::new("the sink"), "write"));
                assert_eq!(cause.kind(), io::ErrorKind::StorageFull);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn what_needs_a_file_is_refused() {
    let source = source();
    let tree = HashTree {
        algorithm: HashAlgorithm::Sha256,
        salt: None,
        parity_roots: None,
    };
    let with_tree = Options {
        hash_tree: Some(tree),
        ..Options::default()
    };
    let sparse = Options {
        android_sparse: true,
        ..Options::default()
    };
    let cancel = AtomicBool::new(false);
    for (options, why) in [(with_tree, "a hash tree"), (sparse, "a sparse image")] {
        let mut sink = Cursor::new(Vec::new());
        let refused = build_into(&mut sink, source.path(), &options, &(), &cancel);
        let text = refused.unwrap_err().to_string();
        assert!(text.starts_with(why), "{text}");
        assert!(sink.into_inner().is_empty());
    }
}
