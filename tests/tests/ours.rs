//! Ours to theirs: what we build, over all options, each alone and each pair of them, is the tree it was made from, as
//! the kernel, `fsck.erofs` and our own reader say. `hard_trees.rs` has the trees that are hard to keep.

use std::path::Path;
use std::time::Instant;

use anteros_build::{
    Codec, Compression, Effort, Exclude, Fragments, Hint, Holes, InodeForm, Options, Order, Quick,
    ReadRange, Setting, Summary, UuidChoice,
};
use anteros_core::FileSystem;
use anteros_tests::built::{Judges, Source};
use anteros_tests::combine::{combinations, in_parallel};
use anteros_tests::judge::say;
use anteros_tests::trees::{Tree, mixed, noise, words};

/// A group, of which two do not go together; a name; and what is changed.
type Atom = (&'static str, &'static str, fn(&mut Options));

/// Changed from the first to the last: a pcluster has at most 256 blocks.
const ATOMS: &[Atom] = &[
    ("block", "block 512", |o| o.block_bits = 9),
    ("block", "block 1024", |o| o.block_bits = 10),
    ("block", "block 2048", |o| o.block_bits = 11),
    ("block", "block 65536", |o| o.block_bits = 16),
    ("codec", "lz4", |o| {
        compression(o).codec = Effort::Fast.into()
    }),
    ("codec", "lz4hc 1", |o| {
        compression(o).codec = Effort::High(1).into()
    }),
    ("codec", "lz4hc 9", |o| {
        compression(o).codec = Effort::High(9).into()
    }),
    ("codec", "lz4hc 12", |o| {
        compression(o).codec = Effort::High(12).into()
    }),
    ("codec", "lz4 optimal", |o| {
        compression(o).codec = Effort::Optimal(64).into()
    }),
    ("codec", "lzma", |o| {
        compression(o).codec = Codec::Lzma {
            level: 1,
            extreme: false,
            dict_bytes: 32 << 10,
        }
    }),
    ("codec", "deflate", |o| {
        compression(o).codec = Codec::Deflate { level: 6 }
    }),
    ("codec", "zstd", |o| {
        compression(o).codec = Codec::Zstd {
            level: 3,
            window_log: 17,
        }
    }),
    ("pcluster", "pcluster 16K", |o| pcluster(o, 16 << 10)),
    ("pcluster", "pcluster 64K", |o| pcluster(o, 64 << 10)),
    ("pcluster", "pcluster 1M", |o| pcluster(o, 1 << 20)),
    ("index", "legacy index", |o| {
        compression(o).legacy_index = true
    }),
    ("tail", "inline tails", |o| {
        compression(o);
        o.inline_tails = true;
    }),
    ("fragments", "fragments", |o| fragments(o, false, None)),
    ("fragments", "all fragments", |o| {
        fragments(o, true, Some(128 << 10))
    }),
    ("equal", "equal parts once", |o| o.dedupe = true),
    ("hints", "hints", hints),
    ("order", "by name", |o| o.order = Order::Name),
    ("sweep", "a profile", |o| sweep(o, DATA)),
    ("quick", "as it is within 30", |o| quick(o, false, 30)),
    ("quick", "a quick codec within 60", |o| quick(o, true, 60)),
    ("gain", "gain 40", |o| compression(o).min_gain_percent = 40),
    ("window", "window 64K", |o| {
        compression(o).window_bytes = 64 << 10
    }),
    ("segment", "segment 64K", |o| {
        compression(o).segment_bytes = 64 << 10
    }),
    ("inline", "no inline data", |o| o.inline_data = false),
    ("holes", "holes kept", |o| o.holes = Holes::Keep),
    ("holes", "holes ignored", |o| o.holes = Holes::Ignore),
    ("chunk", "chunk of a block", |o| {
        o.chunk_bytes = Some(1 << o.block_bits)
    }),
    ("chunk", "chunk 64K", |o| o.chunk_bytes = Some(64 << 10)),
    ("entries", "chunk indexes", chunk_indexes),
    ("address", "48bit", |o| o.wide = true),
    ("dot", "dot-omitted", |o| o.dot_omitted = true),
    ("metadata", "metabox", |o| metabox(o, Effort::High(9), 1)),
    ("metadata", "metabox deflate 64K", |o| {
        metabox(o, Codec::Deflate { level: 6 }, 64 << 10)
    }),
    ("directories", "directories compressed", |o| {
        compression(o);
        o.compress_directories = true;
    }),
    ("inode", "compact", |o| {
        o.inode_form = InodeForm::Compact;
        (o.force_uid, o.force_gid) = (Some(0), Some(0));
    }),
    ("inode", "extended", |o| o.inode_form = InodeForm::Extended),
    ("mtime", "mtime ignored", |o| o.ignore_mtime = true),
    ("time", "time fixed", |o| o.fixed_time = Some(-5)),
    ("time", "time clamped", |o| {
        o.clamp_time = Some(1_699_999_999)
    }),
    ("xattr", "no xattrs", |o| o.xattr_share_above = None),
    ("xattr", "xattrs all shared", |o| {
        o.xattr_share_above = Some(0)
    }),
    ("xattr", "xattrs never shared", |o| {
        o.xattr_share_above = Some(u32::MAX)
    }),
    ("filter", "no xattr filter", |o| o.xattr_filter = false),
    ("prefix", "xattr prefixes", xattr_prefixes),
    ("prefix", "plain xattr prefixes", |o| {
        xattr_prefixes(o);
        o.plain_xattr_prefixes = true;
    }),
    ("owner", "owner forced", |o| {
        (o.force_uid, o.force_gid) = (Some(1000), Some(100));
        (o.uid_offset, o.gid_offset) = (7, 60_000);
    }),
    ("owner", "owner moved", |o| {
        (o.uid_offset, o.gid_offset) = (7, 1000);
        o.exclude.push(Exclude::Path(b"owners/largest".to_vec())); // beyond 32 bits with that
    }),
    ("links", "hard links copied", |o| o.hard_dereference = true),
    ("exclude", "excluded", |o| {
        o.exclude
            .push(Exclude::pattern("^data/words|^many/mm").unwrap())
    }),
    ("checksum", "no checksum", |o| o.checksum = false),
    ("offset", "offset 8192", |o| o.offset = 8192),
    ("name", "label and UUID", |o| {
        o.label = b"fifteen letters".to_vec();
        o.uuid = UuidChoice::Given([5; 16]);
    }),
    ("work", "5 workers, no memory", |o| {
        (o.workers, o.memory_bytes) = (5, 1)
    }),
];

fn compression(options: &mut Options) -> &mut Compression {
    let block = options.block_bytes();
    options.compression.get_or_insert_with(|| {
        let mut compression = Compression::new(Effort::Fast);
        compression.pcluster_bytes = compression.pcluster_bytes.max(block);
        compression
    })
}

fn pcluster(options: &mut Options, bytes: u32) {
    let block = options.block_bytes();
    compression(options).pcluster_bytes = bytes.clamp(block, 256 * block);
}

/// A quick codec, whichever the first one is: see [`options`].
fn quick(options: &mut Options, by_codec: bool, percent: u8) {
    let codec = by_codec.then_some(Effort::Fast.into());
    compression(options).quick = Some(Quick {
        codec,
        percent,
        of_hot: false,
    });
}

/// Files of the tree of everything that are larger than a few blocks.
const DATA: &[&str] = &[
    "data/mixed",
    "data/text",
    "data/zeros-70000",
    "parts/tar",
    "data/most-of-text",
    "data/sparse",
    "data/words-65537",
    "parts/text-with-gap",
    "data/words-8192",
    "data/compressible",
    "data/words-511",
];

/// A few ranges of each file, here and there, as if a program read them by turns.
fn sweep(options: &mut Options, files: &[&str]) {
    let ranges = |round: u64| {
        let ranges = files.iter().rev().zip(round..);
        ranges.map(move |(path, n)| ReadRange {
            path: path.as_bytes().to_vec(),
            offset: (round * 90_000 + n * 17_001) % 200_000,
            len: 100 + n % 3 * 12_000,
        })
    };
    options.hot = (0..4).flat_map(ranges).collect();
    options.hot_cuts_permille = 1000; // wherever it may be
}

fn metabox(options: &mut Options, codec: impl Into<Codec>, bytes: u32) {
    let block = options.block_bytes();
    options.metabox = Some(Setting {
        codec: codec.into(),
        pcluster_bytes: bytes.clamp(block, 256 * block),
        quick: None,
    });
}

fn fragments(options: &mut Options, all: bool, pcluster_bytes: Option<u32>) {
    let block = options.block_bytes();
    compression(options);
    options.fragments = Some(Fragments {
        all,
        pcluster_bytes: pcluster_bytes.map(|bytes| bytes.clamp(block, 256 * block)),
    });
}

/// fsck.erofs 1.9.4 leaves out a hole at the end of a file, if it is in an index; also of images that mkfs.erofs makes.
/// Some files in another codec and cluster size, some as they are.
fn hints(options: &mut Options) {
    compression(options);
    let block = options.block_bytes();
    let setting = Setting {
        codec: Codec::Deflate { level: 6 },
        pcluster_bytes: (16 << 10).clamp(block, 256 * block),
        quick: None,
    };
    options.hints = vec![
        Hint::new("s$", Some(setting)).unwrap(),
        Hint::new("[en]$", None).unwrap(),
    ];
}

/// Prefixes of names that the tree has, and of one that it has not; one goes on where another ends.
fn xattr_prefixes(options: &mut Options) {
    let prefixes = [
        "user.org.example.",
        "user.number-",
        "user.number-1",
        "trusted.overlay.",
        "security.sel",
        "lustre.none.",
    ];
    options.xattr_prefixes = prefixes.map(|prefix| prefix.as_bytes().to_vec()).to_vec();
}

fn chunk_indexes(options: &mut Options) {
    options.chunk_indexes = true;
    let holes_at_the_end = Exclude::pattern("^data/(all-hole|hole-at-the-end|sparse)$");
    options.exclude.push(holes_at_the_end.unwrap());
}

fn options(atoms: &[&Atom]) -> Options {
    let mut options = Options {
        sync: false,
        ..Options::default()
    };
    for (_, _, change) in atoms {
        change(&mut options);
    }
    // Another algorithm than that of the first one.
    if let Some(compression) = &mut options.compression {
        if let (Codec::Lz4(_), Some(quick)) = (compression.codec, &mut compression.quick) {
            quick.codec = quick.codec.map(|_| Codec::Deflate { level: 1 });
        }
    }
    options
}

#[test]
fn what_we_build_is_its_tree() {
    let tree = Tree::everything();
    let all = combinations(ATOMS, |(group, _, _)| group);
    let all: Vec<_> = all
        .iter()
        .map(|atoms| (names(atoms), options(atoms)))
        .collect();
    judge_all("every option with every other", tree.path(), &all);
}

fn names(atoms: &[&Atom]) -> String {
    let names: Vec<_> = atoms.iter().map(|(_, name, _)| *name).collect();
    names.join(" + ")
}

/// Sizes around the edges of blocks, and of what has room behind an inode.
const SIZES: [usize; 20] = [
    0, 1, 447, 448, 511, 512, 513, 4000, 4031, 4032, 4063, 4064, 4065, 4095, 4096, 4097, 8191,
    8193, 12_345, 70_000,
];

/// Files of all these sizes and of three kinds, and some of all lengths.
fn sizes() -> Tree {
    let tree = Tree::new();
    for size in SIZES {
        tree.write(format!("words-{size}"), &words(1, size));
        tree.write(format!("noise-{size}"), &noise(2, size));
        tree.write(format!("zeros-{size}"), &vec![0; size]);
    }
    for seed in 0..20 {
        let size = usize::from_le_bytes(noise(seed, 8).try_into().unwrap()) % 600_000;
        tree.write(format!("mixed-{seed}"), &mixed(seed, size));
    }
    tree
}

#[test]
fn every_size_in_every_form() {
    let tree = sizes();
    let mut all = Vec::new();
    for block_bits in 9..=12 {
        for inline_data in [false, true] {
            for pcluster_bytes in [None, Some(1), Some(8 << 10), Some(64 << 10), Some(1 << 20)] {
                for (legacy_index, wide) in [(false, false), (true, false), (false, true)] {
                    let mut form = options(&[]);
                    (form.block_bits, form.inline_data) = (block_bits, inline_data);
                    form.wide = wide;
                    if let Some(bytes) = pcluster_bytes {
                        pcluster(&mut form, bytes);
                        compression(&mut form).legacy_index = legacy_index;
                    } else if legacy_index || wide {
                        continue; // there is no index
                    }
                    all.push((format!("{form:?}"), form));
                }
            }
        }
    }
    judge_all("every size in every form", tree.path(), &all);
}

/// Indexes of chunks behind inodes of all lengths, with holes and without.
#[test]
fn chunks_with_indexes() {
    let tree = Tree::everything();
    let all = [None, Some(4096), Some(64 << 10)].map(|chunk_bytes| {
        let mut form = options(&[]);
        form.chunk_bytes = chunk_bytes;
        chunk_indexes(&mut form);
        (format!("{form:?}"), form)
    });
    judge_all("chunk indexes", tree.path(), &all);
}

/// All that makes an image smaller, together, in small segments and large ones.
#[test]
fn every_way_to_pack_with_every_other() {
    let tree = sizes();
    tree.add_copies();
    tree.add_equal_parts(300_000);
    let lzma = Codec::Lzma {
        level: 1,
        extreme: false,
        dict_bytes: 1 << 20,
    };
    let zstd = Codec::Zstd {
        level: 3,
        window_log: 19,
    };
    let codecs = [Effort::Fast.into(), lzma, Codec::Deflate { level: 6 }, zstd];
    let mut all = Vec::new();
    for (case, wide) in (0..48).map(|n| (n % 24, n >= 24)) {
        let has = |bit: u32| case >> bit & 1 == 1;
        let mut form = options(&[]);
        form.wide = wide;
        form.block_bits = if has(0) { 12 } else { 9 };
        pcluster(&mut form, if has(1) { 64 << 10 } else { 1 });
        compression(&mut form).legacy_index = has(2);
        let is_cut = has(0) != (case / 8 == 1);
        compression(&mut form).segment_bytes = if is_cut { 128 << 10 } else { 4 << 20 };
        form.inline_tails = has(1) != has(2);
        form.dedupe = has(0) == has(2);
        compression(&mut form).codec = codecs[(case + case / 8) % codecs.len()];
        form.dot_omitted = wide && case % 3 == 0;
        form.compress_directories = case % 4 == 1 || case % 8 == 2;
        if wide && case % 3 == 1 {
            metabox(&mut form, codecs[case % codecs.len()], 16 << 10);
        }
        match case / 8 {
            0 => {}
            packs => fragments(&mut form, packs == 2, None),
        }
        all.push((format!("{form:?}"), form));
    }
    judge_all("every way to pack", tree.path(), &all);
}

/// Equal parts in trees that are made of little else, with blocks, clusters, codecs and segments of all kinds.
#[test]
fn equal_parts_wherever_they_lie() {
    let tree = Tree::new();
    tree.add_equal_parts(500_000);
    tree.add_copies();
    let zstd = Codec::Zstd {
        level: 3,
        window_log: 17,
    };
    let lzma = Codec::Lzma {
        level: 1,
        extreme: false,
        dict_bytes: 32 << 10,
    };
    let mut all = Vec::new();
    for codec in [
        Effort::Fast.into(),
        Effort::High(9).into(),
        zstd,
        lzma,
        Codec::Deflate { level: 1 },
    ] {
        for (block_bits, pcluster_bytes) in [
            (9, 1),
            (10, 8 << 10),
            (12, 1),
            (12, 16 << 10),
            (12, 64 << 10),
            (12, 1 << 20),
        ] {
            for (cut, wide) in [(false, false), (true, false), (true, true)] {
                let mut form = options(&[]);
                (form.dedupe, form.wide) = (true, wide);
                form.block_bits = block_bits;
                pcluster(&mut form, pcluster_bytes);
                compression(&mut form).codec = codec;
                compression(&mut form).legacy_index = cut && block_bits == 10;
                compression(&mut form).segment_bytes = if cut { 128 << 10 } else { 4 << 20 };
                form.inline_tails = cut;
                if cut == (block_bits == 12) {
                    fragments(&mut form, false, None);
                }
                all.push((format!("{form:?}"), form));
            }
        }
    }
    let summaries = judge_all("equal parts", tree.path(), &all);
    for ((name, form), summary) in all.iter().zip(summaries) {
        // Files of one cluster are packed.
        let least = if form.fragments.is_some() {
            0
        } else {
            1_000_000
        };
        assert!(summary.shared_bytes >= least, "{name}: {summary:?}");
    }
}

/// Parts of files in front of all other content, with equal parts among them, in every form.
#[test]
fn what_is_read_lies_in_front() {
    let tree = Tree::new();
    tree.add_equal_parts(500_000);
    tree.add_copies();
    for n in 0..5 {
        tree.write(format!("large/{n}"), &mixed(n, 700_000 + 1234 * n as usize));
        tree.write(format!("small/{n}"), &words(n, 3000 * n as usize));
    }
    let read = [
        "large/3",
        "parts/text",
        "parts/tar",
        "large/1",
        "small/4",
        "parts/text-with-gap",
        "parts/twice",
        "small/1",
        "parts/tar-of-others",
        "large/0",
        "parts/hiss-aside",
        "parts/front",
        "large/none",
    ];
    let lzma = Codec::Lzma {
        level: 1,
        extreme: false,
        dict_bytes: 32 << 10,
    };
    let mut all = Vec::new();
    for case in 0..96 {
        let has = |bit: u32| case >> bit & 1 == 1;
        let mut form = options(&[]);
        form.wide = has(0);
        form.dedupe = has(1);
        form.block_bits = if has(2) { 9 } else { 12 };
        pcluster(&mut form, if has(3) { 64 << 10 } else { 8 << 10 });
        compression(&mut form).codec = if has(4) { lzma } else { Effort::Fast.into() };
        compression(&mut form).segment_bytes = if has(1) != has(3) { 64 << 10 } else { 4 << 20 };
        form.inline_tails = has(2) != has(4);
        match case / 32 {
            0 => form.compress_directories = has(3),
            packs => fragments(&mut form, packs == 2, None),
        }
        sweep(&mut form, &read);
        all.push((format!("{form:?}"), form));
    }
    judge_all("what is read", tree.path(), &all);
}

#[test]
fn inodes_that_are_read_lie_in_front() {
    let tree = Tree::new();
    let names = (0..40).map(|n| (format!("{}", n % 4), format!("{n}")));
    let names: Vec<_> = names.collect();
    for (directory, name) in &names {
        tree.write(format!("{directory}/{name}"), &words(1, 9000));
    }
    let mut form = options(&[]);
    form.hot = [ReadRange {
        path: b"/2/38".to_vec(),
        offset: 0,
        len: 1,
    }]
    .into();
    let built = Judges::find().build(tree.path(), &form).unwrap();
    let fs = built.fs().unwrap();
    let ino = |parent, name: &str| fs.lookup(parent, name.as_bytes()).unwrap().ino;
    let mut inodes = vec![(fs.root(), "root".to_owned())];
    for (directory, name) in &names {
        let parent = ino(fs.root(), directory);
        inodes.push((parent, directory.clone()));
        inodes.push((ino(parent, name), format!("{directory}/{name}")));
    }
    inodes.sort();
    inodes.dedup();
    let first: Vec<_> = inodes[..3].iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(first, ["root", "2", "2/38"]);
}

/// Streams whose ends lie at each byte of a page, for Linux sees the end of some codecs' only in the page where their last
/// content was.
#[test]
fn encoded_extents_end_where_linux_looks() {
    let tree = Tree::new();
    for seed in 0..6 {
        tree.write(format!("words-{seed}"), &words(seed, 8 << 20));
    }
    let mut form = options(&[]);
    form.wide = true;
    compression(&mut form).codec = Codec::Deflate { level: 1 };
    compression(&mut form).window_bytes = 4096; // many extents
    judge_all("ends of streams", tree.path(), &[("deflate".into(), form)]);
}

fn judge_all(what: &str, tree: &Path, all: &[(String, Options)]) -> Vec<Summary> {
    let judges = Judges::find();
    let source = Source::new(tree);
    let start = Instant::now();
    let results = in_parallel(all, |(_, options)| judges.judge(&source, options));
    let wrong = all.iter().zip(&results).filter_map(|((name, _), result)| {
        let error = result.as_ref().err()?;
        Some(format!("{name}: {error}"))
    });
    let wrong: Vec<_> = wrong.collect();
    say(format_args!(
        "{what}: {} images judged in {} s",
        all.len(),
        start.elapsed().as_secs()
    ));
    let (count, text) = (wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty(), "{count} wrong:\n{text}");
    results.into_iter().flatten().collect()
}
