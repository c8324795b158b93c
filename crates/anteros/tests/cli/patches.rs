//! Tests images that are patched. Judges are the kernel, erofs-utils, which makes images to patch as well, and `verify`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;
use anteros_tests::trees::{Random, words};

use crate::{Run, Workshop, run};

const BASE: &str = r#"
mkdir -p base/d/s base/kept base/gone/deep
cp text base/text; head -c 70001 text >base/d/part; ln base/text base/d/again; ln -s d/part base/link; mkfifo base/pipe
for n in 1 2 3 4 5 6 7 8 9; do echo $n >base/kept/$n; head -c ${n}001 text >base/d/s/$n; done
truncate -s 1M base/sparse; echo end >>base/sparse; : >base/empty; echo old >base/d/both; echo x >base/gone/deep/x
setfattr -n user.same -v same base/kept/* base/d/s/*; setfattr -n user.one -v one base/d; touch -d @7 base/text base/kept
cp -a base tree
"#;

/// Changes of all kinds.
pub const CHANGES: &str = r#"
echo new >tree/d/both; tail -c 50000 text >tree/d/s/1; mkdir tree/new; echo n >tree/new/n; ln tree/new/n tree/linked
chmod 700 tree/d; chmod 600 tree/d/part; touch -d @1234567 tree/d/s/2; setfattr -n user.more -v "a longer value" tree/d/s/3 tree/d/s/4
setfattr -x user.same tree/d/s/5; setfattr -x user.same tree/kept/5; rm tree/d/again tree/kept/9; rm -r tree/gone
ln tree/kept/1 tree/new/one; mv tree/kept/2 tree/new/two; rm tree/link; ln -s elsewhere tree/link; rm tree/pipe; echo file >tree/pipe
printf x | dd of=tree/sparse bs=1 seek=500000 conv=notrunc 2>/dev/null
"#;

/// Forms of images that are patched, as options of either tool.
pub const FORMS: [&str; 19] = [
    "",
    "-zlz4",
    "-zlz4hc -C65536",
    "-zlz4hc -C65536 -Eztailpacking",
    "-zlz4hc -C65536 -Efragments",
    "-zlzma -C65536 -Eall-fragments,ztailpacking",
    "-zzstd -C32768 -Ededupe",
    "-zlz4 -C16384 -E48bit",
    "-zdeflate -C16384 -E48bit,all-fragments",
    "-zlz4 -Elegacy-compress",
    "-zlz4hc -C65536 -Elegacy-compress,fragments",
    "-zdeflate -C8192 -b1024",
    "-b512",
    "-E^inline_data",
    "--chunksize=4096",
    "--chunksize=8192 -Eforce-chunk-indexes",
    "-E48bit --chunksize=8192",
    "-Eforce-inode-extended",
    "-Enosbcrc -x1",
];

/// A workshop with a tree to pack, a copy of it that is changed, and such images.
pub fn shop() -> Workshop {
    let shop = Workshop::new();
    symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    fs::write(shop.path("text"), words(6, 300_000)).unwrap();
    shop.good_script(BASE);
    shop
}

/// Runs a tool of erofs-utils.
pub fn peer(shop: &Workshop, peers: &Peers, tool: &str, arguments: &str) -> Run {
    let mut tool = peers.command(tool);
    run(tool
        .args(arguments.split_whitespace())
        .current_dir(shop.dir.path()))
}

/// Makes an image of a tree, by one tool or the other; answers whether that one is there.
pub fn make(
    shop: &Workshop,
    peers: Option<&Peers>,
    (image, tree): (&str, &str),
    options: &str,
    theirs: bool,
) -> bool {
    let made = format!("--quiet {options} {image} {tree}");
    match (peers, theirs) {
        (None, true) => return false,
        (Some(peers), true) => {
            let made = peer(shop, peers, "mkfs.erofs", &made);
            assert_eq!(made.status, Some(0), "{options}: {made:?}");
        }
        (_, false) => shop.good_script(&format!("./mkfs.erofs {made}")),
    }
    true
}

/// Prints everything of a tree.
pub fn listed(tree: &Path) -> String {
    let text = "find . | LC_ALL=C sort | xargs stat -c '%n %F %a %h %u %t:%T %Y'
        find . -type f | LC_ALL=C sort | xargs sha256sum
        find . | LC_ALL=C sort | xargs getfattr -h -d -m -";
    let mut shell = Command::new("sh");
    let told = run(shell.args(["-c", text]).current_dir(tree));
    assert_eq!(told.status, Some(0), "{told:?}");
    told.out
}

/// Has all judges look at an image that is to be as a tree.
pub fn judge_image(shop: &Workshop, peers: Option<&Peers>, tree: &str, what: &str) {
    shop.good("check image");
    shop.good(&format!("verify image {tree}"));
    if judge::has_kernel() {
        let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
        assert_eq!(listed(mount.path()), listed(&shop.path(tree)), "{what}");
    }
    if let Some(peers) = peers {
        let told = peer(shop, peers, "fsck.erofs", "--extract image");
        assert_eq!(told.status, Some(0), "{what}: {told:?}");
    }
}

/// Returns whether all bytes of an image are in another one but for its superblock, and zeros.
fn stays(before: &[u8], after: &[u8]) -> bool {
    let is_superblock = |at: usize| (1024..1152).contains(&at);
    let mut bytes = before.iter().zip(after).enumerate();
    before.len() <= after.len()
        && bytes.all(|(at, (old, new))| old == new || *old == 0 || is_superblock(at))
}

/// Images of all forms, of both tools: what is there stays where it is, and the tree is the new one.
#[test]
fn an_image_becomes_another_tree() {
    let shop = shop();
    let peers = Peers::find();
    shop.good_script(CHANGES);
    for options in FORMS {
        for theirs in [false, true] {
            if !make(&shop, peers.as_ref(), ("image", "base"), options, theirs) {
                continue;
            }
            let what = format!("{options} {theirs}");
            let before = fs::read(shop.path("image")).unwrap();
            let told = shop.good("patch image --from tree --dry-run");
            assert!(fs::read(shop.path("image")).unwrap() == before, "{what}");
            assert!(
                told.contains("D /gone\n") && told.contains("M /d/both\n"),
                "{told}"
            );
            shop.good("patch image --from tree --quiet");
            judge_image(&shop, peers.as_ref(), "tree", &what);
            let after = fs::read(shop.path("image")).unwrap();
            assert!(stays(&before, &after), "{what}");
            // Nothing is left to do; and back again.
            let told = shop.good("patch image --from tree");
            assert_eq!(told, "image: nothing to change\n", "{what}");
            assert!(fs::read(shop.path("image")).unwrap() == after, "{what}");
            shop.good("patch image --from base --quiet");
            judge_image(&shop, peers.as_ref(), "base", &what);
            let last = fs::read(shop.path("image")).unwrap();
            assert!(stays(&after, &last), "{what}");
        }
    }
}

/// Each change by its letter, and in numbers; a file that stays is in none of them.
#[test]
fn changes_are_told() {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet");
    let told = shop.good("patch image --from tree -n");
    let lines: Vec<&str> = told.lines().collect();
    let (summary, paths) = lines.split_last().unwrap();
    let expected = [
        "m /",
        "m /d",
        "D /d/again",
        "M /d/both",
        "m /d/part",
        "M /d/s/1",
        "m /d/s/2",
        "m /d/s/3",
        "m /d/s/4",
        "m /d/s/5",
        "D /gone",
        "m /kept",
        "m /kept/1",
        "D /kept/2",
        "m /kept/5",
        "D /kept/9",
        "M /link",
        "A /linked",
        "A /new",
        "A /new/n",
        "A /new/one",
        "A /new/two",
        "M /pipe",
        "M /sparse",
        "m /text",
    ];
    assert_eq!(paths, expected);
    assert_eq!(
        *summary,
        "image: would change: 5 added, 5 replaced, 11 edited, 4 removed"
    );
    let json = shop.good("patch image --from tree --json");
    for field in ["\"written\": true", "\"added\": 5", "\"stay\": "] {
        assert!(json.contains(field), "{json}");
    }
}

/// Random changes, one after the other: after each the image is as the tree, and grows by little.
#[test]
fn random_patches_follow_a_tree() {
    for (seed, options) in [
        (1, "-zlz4hc -C65536"),
        (2, "-zlz4 -E48bit"),
        (3, "-zzstd -C16384 -Efragments -b1024"),
        (4, "-znone -Eforce-inode-extended"),
    ] {
        let shop = shop();
        let mut random = Random(seed);
        shop.good(&format!("mkfs image tree --quiet {options}"));
        for round in 0..12 {
            for _ in 0..=random.below(6) {
                change(&shop, &mut random);
            }
            let before = fs::read(shop.path("image")).unwrap();
            shop.good("patch image --from tree --quiet");
            shop.good("check image");
            let told = shop.run("verify image tree");
            assert_eq!(told.status, Some(0), "{options} {round}: {told:?}");
            let after = fs::read(shop.path("image")).unwrap();
            assert!(stays(&before, &after), "{options} {round}");
        }
        judge_image(&shop, Peers::find().as_ref(), "tree", options);
    }
}

/// Changes something of the tree, or nothing.
pub fn change(shop: &Workshop, random: &mut Random) {
    let [one, other] = [(); 2].map(|()| {
        let directory = ["d", "d/s", "kept", "more", "."][random.below(5) as usize];
        format!("tree/{directory}/{}", random.below(9))
    });
    let number = random.below(1 << 20);
    let bits = 1 + random.below(18);
    let len = 1 + random.below(1 << bits);
    let text = match random.below(11) {
        0 | 1 => format!("head -c {len} text >{one}"),
        2 => format!("printf {number} | dd of={one} bs=1 seek={len} conv=notrunc 2>/dev/null"),
        3 => format!("rm -rf {one}"),
        4 => format!("chmod {} {one}", 600 + 10 * random.below(8)),
        5 => format!("touch -d @{number}.5 {one}"),
        6 => format!("setfattr -n user.{} -v {number} {one}", random.below(3)),
        7 => format!("ln -f {one} {other}"),
        8 => format!("mv -f {one} {other}"),
        9 => "mkdir tree/more".into(),
        _ => format!("ln -sfn {number} {one}"),
    };
    // What is not there, or something else, stays as it is.
    shop.script(&format!("{{ {text}; }} 2>/dev/null || true"));
}

/// Whenever it is killed, the image is the old one or the new one.
#[test]
fn a_patch_that_is_killed_leaves_an_image() {
    let shop = shop();
    shop.good("mkfs base.img base --quiet");
    fs::write(shop.path("tree/large"), vec![7; 20 << 20]).unwrap();
    shop.good_script(CHANGES);
    let patch = "patch image --from tree --quiet";
    let mut left = [0, 0];
    for delay in 0..30 {
        fs::copy(shop.path("base.img"), shop.path("image")).unwrap();
        let mut child = shop.command(patch).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(6 * delay));
        let _ = child.kill();
        child.wait().unwrap();
        shop.good("check image");
        let is_new = shop.good("cat image d/both") == "new\n";
        left[usize::from(is_new)] += 1;
        let tree = if is_new { "tree" } else { "base" };
        shop.good(&format!("verify image {tree}"));
    }
    assert!(left[0] > 0, "{left:?}");
    // What was left behind is no hindrance.
    shop.good(patch);
    judge_image(&shop, None, "tree", "after a kill");
}

#[test]
fn what_cannot_be_patched_is_told_and_stays() {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet -zlz4");
    shop.good("mkfs metabox base --quiet -m4096:lz4");
    shop.good("mkfs devices base --quiet --chunksize=4096 --blobdev=blob");
    shop.good("mkfs digests base --quiet --xattr-inode-digest=trusted.digest");
    shop.good("mkfs verity base --quiet --verity");
    fs::write(shop.path("other"), "no image").unwrap();
    let names = ["image", "metabox", "devices", "digests", "verity", "other"];
    let read = || names.map(|name| fs::read(shop.path(name)).unwrap());
    let before = read();
    for (status, arguments, said) in [
        (
            4,
            "metabox --from tree",
            "compressed metadata cannot be patched",
        ),
        (2, "devices --from tree", "1 extra devices, 0 were given"),
        (
            4,
            "digests --from tree",
            "digests of content in attributes cannot be patched",
        ),
        (
            4,
            "verity --from tree",
            "a hash tree, which would not match any more, cannot be patched",
        ),
        (3, "other --from tree", "other: "),
        (5, "none --from tree", "none: "),
        (5, "image --from none", "none"),
        (
            2,
            "image --from tree -zzstd",
            "says nothing of that compression",
        ),
        (
            2,
            "image --from tree -C1M",
            "clusters or windows that large",
        ),
        (2, "image --from .", "the image lies inside the source"),
    ] {
        let told = shop.run(&format!("patch {arguments}"));
        assert_eq!(told.status, Some(status), "{arguments}: {told:?}");
        assert!(told.err.contains(said), "{arguments}: {told:?}");
        assert!(read() == before, "{arguments}");
    }
    // What was written until there was no more room is taken away again.
    fs::write(shop.path("tree/large"), words(7, 20 << 20)).unwrap();
    let told = shop.script("trap '' XFSZ; ulimit -f 4096; ./anteros patch image --from tree");
    assert!(
        told.status == Some(5) && told.err.contains("image"),
        "{told:?}"
    );
    assert!(read() == before);
}

/// An image is refused and stays as it is, or has the new tree.
#[test]
fn a_hostile_image_is_refused_or_patched() {
    let shop = shop();
    shop.good("mkfs base.img base --quiet -Enosbcrc -zlz4 -C16384");
    shop.good("patch base.img --from tree --quiet -z lz4");
    shop.good_script(CHANGES);
    fs::copy(shop.path("base.img"), shop.path("image")).unwrap();
    shop.good_script("cp -a base first; echo first >first/first");
    shop.good("patch image --from first --quiet");
    let good = fs::read(shop.path("image")).unwrap();
    let mut random = Random(11);
    let mut outcomes = [0, 0];
    for number in 0..200 {
        let mut image = good.clone();
        // The superblock, metadata, or the record at the end.
        let (from, len) = match number % 3 {
            0 => (1024, 128),
            1 => (image.len() - 4096, 1024),
            _ => (4096, image.len() as u64 - 8192),
        };
        for _ in 0..=random.below(3) {
            let at = from + random.below(len) as usize;
            image[at] ^= 1 << random.below(8);
        }
        fs::write(shop.path("image"), &image).unwrap();
        let told = shop.run("patch image --from tree --quiet");
        let is_refused = told.status != Some(0);
        outcomes[usize::from(is_refused)] += 1;
        match is_refused {
            true => {
                assert!(matches!(told.status, Some(2..=5)), "{number}: {told:?}");
                let left = fs::read(shop.path("image")).unwrap();
                assert!(left == image, "{number}: {told:?}");
            }
            false => {
                let read = shop.run("cat image new/n");
                let is_there = (read.status, &read.out[..]) == (Some(0), "n\n");
                assert!(is_there, "{number}: {read:?}");
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 20), "{outcomes:?}");
}

/// Small files of a patch lie together where those of the image do, and one alone is not worth a new index.
#[test]
fn small_files_are_packed() {
    let shop = shop();
    let peers = Peers::find();
    fs::create_dir(shop.path("base/many")).unwrap();
    let text = words(8, 3_000_000);
    fs::write(shop.path("base/long"), &text).unwrap();
    for options in [
        "-zlz4 -Eall-fragments",
        "-zzstd -C65536 -Efragments -E48bit",
        "-zlzma,1 -C131072 -Eall-fragments -b1024",
    ] {
        shop.good(&format!("mkfs image base --quiet {options}"));
        let grown = |what: &str| {
            let len = || fs::metadata(shop.path("image")).unwrap().len();
            let before = len();
            shop.good("patch image --from next --quiet");
            judge_image(&shop, peers.as_ref(), "next", &format!("{options}: {what}"));
            len() - before
        };
        shop.good_script("rm -rf next; cp -a base next; echo one >next/many/one");
        let one = grown("one");
        assert!(one < 40_000, "{options}: {one}");
        for number in 0..900 {
            let at = 3000 * number;
            let name = shop.path(&format!("next/many/{number}"));
            fs::write(name, &text[at..at + 600]).unwrap();
        }
        let many = grown("many");
        assert!(many < 450_000, "{options}: {many}");
        let told = shop.good("patch image --rollback 1 --quiet");
        assert_eq!(told, "");
        shop.good_script("rm next/many/[0-9]*; touch -r base/many next/many");
        shop.good("patch image --rollback 2 --quiet");
        let back = grown("back");
        assert!(back < 60_000, "{options}: {back}");
        // An index for small clusters cannot name large ones of the packed inode.
        shop.good_script("for n in $(seq 300); do head -c $n text >next/many/$n; done");
        shop.good("patch image --from next --quiet -C 4096");
        judge_image(
            &shop,
            peers.as_ref(),
            "next",
            &format!("{options}: small clusters"),
        );
    }
}

/// A file whose bytes are those of a record at the end of an image is no record.
#[test]
fn a_file_that_ends_as_a_record_is_none() {
    let shop = shop();
    shop.good("mkfs image base --quiet");
    shop.good_script("echo more >tree/more");
    shop.good("patch image --from tree --quiet");
    let image = fs::read(shop.path("image")).unwrap();
    let record = &image[image.len() - 4096..];
    assert!(record.starts_with(b"anterosP"));
    // Of one file in blocks of its own, whose inode lies beside the superblock, the data comes last.
    fs::create_dir(shop.path("one")).unwrap();
    fs::write(shop.path("one/file"), record).unwrap();
    shop.good("mkfs fake one --quiet -znone");
    let fake = fs::read(shop.path("fake")).unwrap();
    assert!(fake[fake.len() - 4096..] == *record);
    let told = shop.run("patch fake --from base");
    assert_eq!(told.status, Some(3), "{told:?}");
    assert!(fs::read(shop.path("fake")).unwrap() == fake);
}

/// The states of an image, the oldest first: number, whether it is the current one, what made it.
fn states(shop: &Workshop) -> Vec<String> {
    let listed = shop.good("patch image --list");
    let columns = |line: &str| {
        let is_current = line.starts_with('*');
        let words: Vec<&str> = line[2..].split_whitespace().collect();
        let is_rollback = words[1] == "rollback";
        let change = if is_rollback {
            words[1..4].join(" ")
        } else {
            words[1].into()
        };
        format!("{}{} {change}", words[0], if is_current { "*" } else { "" })
    };
    listed.lines().map(columns).collect()
}

/// Every state comes back, in any order, and none is lost. Slots of the root move with some of these images.
#[test]
fn former_states_come_back() {
    let shop = shop();
    let peers = Peers::find();
    shop.good_script(CHANGES);
    shop.good_script("cp -a tree last; echo last >last/d/both; rm last/d/part");
    for options in [
        "-zlz4hc -C65536 -Efragments",
        "-znone",
        "-zlz4 -E48bit",
        "-zdeflate -b1024 -Enosbcrc",
    ] {
        shop.good(&format!("mkfs image base --quiet {options}"));
        assert_eq!(states(&shop), ["0* built"]);
        let told = shop.bad(2, "patch image --rollback 0");
        assert!(told.contains("was never patched"), "{told}");
        shop.good("patch image --from tree --quiet");
        shop.good("patch image --from last --quiet");
        assert_eq!(states(&shop), ["0 built", "1 patch", "2* patch"]);
        for (number, tree) in [(0, "base"), (2, "last"), (1, "tree"), (3, "base")] {
            let before = fs::read(shop.path("image")).unwrap();
            shop.good(&format!("patch image --rollback {number}"));
            judge_image(&shop, peers.as_ref(), tree, options);
            let after = fs::read(shop.path("image")).unwrap();
            assert!(stays(&before, &after), "{options} {number}");
        }
        shop.good("patch image --from tree --quiet");
        judge_image(&shop, peers.as_ref(), "tree", options);
        let expected = [
            "0 built",
            "1 patch",
            "2 patch",
            "3 rollback to 0",
            "4 rollback to 2",
            "5 rollback to 1",
            "6 rollback to 3",
            "7* patch",
        ];
        assert_eq!(states(&shop), expected, "{options}");
        for (number, said) in [
            (7, "state 7 is the current one"),
            (8, "there is no state 8"),
        ] {
            let told = shop.bad(2, &format!("patch image --rollback {number}"));
            assert!(told.contains(said), "{told}");
        }
        let json = shop.good("patch image --list --json");
        assert_eq!(json.matches("\"number\"").count(), 8);
        // Whoever appends otherwise knows nothing of states.
        shop.good("mkfs image last --append --quiet");
        assert_eq!(states(&shop), ["0* built"]);
    }
}

/// Records that were changed are refused, by `--list` and by `--rollback`, and nothing is written.
#[test]
fn hostile_records_are_refused() {
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet -zlz4");
    shop.good("patch image --from tree --quiet");
    let first = fs::metadata(shop.path("image")).unwrap().len() as usize;
    shop.good("patch image --from base --quiet");
    let good = fs::read(shop.path("image")).unwrap();
    let mut random = Random(5);
    for number in 0..80 {
        let mut image = good.clone();
        let end = if number % 2 == 0 { good.len() } else { first };
        // The magic of the last one is left: without it, there is none.
        let at = end - 4096 + 8 + random.below(1016) as usize;
        image[at] ^= 1 << random.below(8);
        fs::write(shop.path("image"), &image).unwrap();
        for arguments in ["--list", "--rollback 0"] {
            let told = shop.run(&format!("patch image {arguments}"));
            assert_eq!(told.status, Some(3), "{number}: {told:?}");
            assert!(told.err.contains("the record of a patch"), "{told:?}");
        }
        assert!(fs::read(shop.path("image")).unwrap() == image);
    }
}

/// An archive lies over the tree of the image, and paths are removed, in one patch.
#[test]
fn archives_are_laid_over_and_paths_removed() {
    let shop = shop();
    let peers = Peers::find();
    shop.good_script(
        "mkdir -p layer/d layer/new; echo new >layer/d/both; echo n >layer/new/n; : >layer/.wh.empty
        chmod --reference=base/d layer/d; touch -r base/d layer/d; touch -r base layer; setfattr -n user.one -v one layer/d
        tar -C layer --xattrs -cf layer.tar d new .wh.empty; gzip -k layer.tar
        echo new >tree/d/both; mkdir tree/new; cp -a layer/new/n tree/new/; rm -r tree/empty tree/gone tree/kept/9
        touch -r layer/new tree/new; cp -p layer/d/both tree/d/both
        touch -r base/d tree/d; touch -r base tree; touch -r base/kept tree/kept",
    );
    for options in ["-zlz4 -C16384", "-zlz4 -E48bit -Efragments"] {
        for way in ["--tar layer.tar.gz", "--tar -"] {
            shop.good(&format!("mkfs image base --quiet {options}"));
            let told = shop.script(&format!(
                "./anteros patch image {way} --delete gone --delete /kept/9 --quiet <layer.tar"
            ));
            assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{told:?}");
            judge_image(&shop, peers.as_ref(), "tree", options);
        }
    }
    let before = fs::read(shop.path("image")).unwrap();
    for (status, arguments, said) in [
        (5, "--delete none", "none"),
        (2, "--delete /", "the root directory cannot be removed"),
        (2, "--from base --delete d", "cannot be used with"),
        (2, "--from base --list", "cannot be used with"),
        (3, "--tar text", "text"),
        (2, "", "nothing says what to change"),
    ] {
        let told = shop.run(&format!("patch image {arguments}"));
        assert_eq!(told.status, Some(status), "{arguments}: {told:?}");
        assert!(told.err.contains(said), "{arguments}: {told:?}");
    }
    assert!(fs::read(shop.path("image")).unwrap() == before);
}

/// Files of the host are put at paths of the image, one by one and whole directories, and what is there is replaced.
#[test]
fn files_are_added() {
    let shop = shop();
    let peers = Peers::find();
    shop.good_script(
        "mkdir -p put/deep; cp -a base/d/s put/deep/; echo put >put/text; ln -s text put/link; setfattr -n user.put -v 1 put/text
        cp -a put/. tree/d/; cp -a put/text tree/text; cp -a put/text tree/kept/text; rm -r tree/gone
        touch -r put tree/d; chmod --reference=put tree/d; setfattr -x user.one tree/d; touch -r base/kept tree/kept
        touch -r base tree",
    );
    for options in ["-zlz4 -C16384", "-znone"] {
        shop.good(&format!("mkfs image base --quiet {options}"));
        let added = "--add put d --add put/text /text --add put/text kept/";
        shop.good(&format!("patch image {added} --delete gone --quiet"));
        judge_image(&shop, peers.as_ref(), "tree", options);
    }
    let before = fs::read(shop.path("image")).unwrap();
    for (status, arguments, said) in [
        (2, "--add put/text", "--add"),
        (5, "--add none there", "none"),
        (
            2,
            "--add put/text d/new --delete d",
            "d: is to be removed, and added",
        ),
        (2, "--from base --add put put", "cannot be used with"),
        (2, "--add / /", "has no name"),
    ] {
        let told = shop.run(&format!("patch image {arguments}"));
        assert_eq!(told.status, Some(status), "{arguments}: {told:?}");
        assert!(told.err.contains(said), "{arguments}: {told:?}");
    }
    assert!(fs::read(shop.path("image")).unwrap() == before);
}

/// Many inodes leave room for the roots of patches, so that these copy none.
#[test]
fn roots_find_free_slots_among_many_inodes() {
    let shop = Workshop::new();
    shop.good_script("mkdir -p tree/many; cd tree/many; seq -w 1 300000 | split -a 4 -l 10");
    shop.good("mkfs image tree --quiet");
    for round in 0..2 {
        fs::write(shop.path("new"), format!("{round}")).unwrap();
        let told = shop.good("patch image --add new new --json");
        assert!(told.contains("\"copied\": 0"), "{told}");
        shop.good("check --quiet image");
        assert_eq!(shop.good("cat image new"), format!("{round}"));
    }
    // Few inodes are near the end in any case, and all in the block of the superblock take one.
    shop.good_script("rm -r tree/many; echo few >tree/few");
    shop.good("mkfs image tree --quiet");
    assert_eq!(fs::metadata(shop.path("image")).unwrap().len(), 4096);
}

/// An image on a block device goes on behind its end, as far as there is room.
#[test]
fn a_device_is_patched_if_it_has_room() {
    if !judge::is_root() || !judge::has_kernel() {
        return;
    }
    let shop = shop();
    shop.good_script(CHANGES);
    shop.good("mkfs image base --quiet");
    let len = fs::metadata(shop.path("image")).unwrap().len();
    for (room, status) in [(8 << 20, 0), (4096, 5)] {
        shop.good("mkfs disk base --quiet");
        let disk = fs::File::options()
            .write(true)
            .open(shop.path("disk"))
            .unwrap();
        disk.set_len(len + room).unwrap();
        let script = "dev=$(losetup --show -f disk); ./anteros patch $dev --from tree --quiet; s=$?
            losetup -d $dev; exit $s";
        let told = shop.script(&format!("set +e; {script}"));
        assert_eq!(told.status, Some(status), "{told:?}");
        let tree = if status == 0 { "tree" } else { "base" };
        shop.good(&format!("verify disk {tree}"));
    }
}
