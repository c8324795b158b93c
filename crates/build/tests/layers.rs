//! Tests layers one over another. The kernel is the judge: its overlayfs writes the layers, and shows what is to be in the
//! image of them.
//!
//! Invariant B9 of `docs/design/building.md`.

#[expect(dead_code, reason = "other tests use more of it")]
mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anteros_build::{
    Archive, Compression, Effort, Error, Exclude, FileContexts, Fragments, Holes, Input, Layer,
    Options, Order,
};
use tempfile::TempDir;

use common::{Random, build, is_root, missing_judge};

/// The options of GNU tar that keep everything.
const ALL: &str = "--format=posix --sparse --acls --xattrs --xattrs-include=*";

/// Functions to write a layer over others, and to show all.
const OVER: &str = r#"
    over() {
        mkdir "$2" work
        mount -t overlay -o "redirect_dir=off,metacopy=off,index=off,lowerdir=$1,upperdir=$2,workdir=work" overlay shown
    }
    done_with() { umount shown; rm -r work; }
    show() { mount -t overlay -o lowerdir=2:1:0 overlay shown; }
    mkdir 0 shown
"#;

/// Layers that overlayfs has written: `0` by itself, `1` over it, and `2` over both.
const LAYERS: &str = r#"
    cd 0
    mkdir -p kept/deep gone/deep replaced again/deep merged empty
    for dir in kept gone again merged replaced kept/deep gone/deep again/deep; do
        echo "lower $dir" >$dir/file
        echo "another $dir" >$dir/other
    done
    seq 30000 >big; echo text >file; echo text >removed; ln -s file symlink; mkfifo fifo
    ln file kept/link; ln file gone/link; ln big merged/big; ln removed merged/removed
    mknod null c 1 3; chmod 4755 big; chown 1000:100000 file
    setfattr -n user.lower -v 1 merged; setfattr -n user.same -v 1 kept file big
    truncate -s 3M sparse; echo data | dd of=sparse seek=1M bs=1 conv=notrunc status=none
    touch -d @1700000000.123456789 big kept .
    cd ..

    over 0 1
    cd shown
    rm -r gone; rm removed fifo; rm -r again; mkdir again; echo new >again/new
    rm -r replaced; echo file >replaced; rm file; mkdir file; echo below >file/below
    echo more >merged/more; setfattr -n user.upper -v 2 merged; chmod 700 merged; rm merged/other
    ln merged/more merged/link; ln merged/more more; seq 9000 >kept/deep/new
    mv kept/file kept/moved; touch -d @1600000000 merged
    cd ..; done_with

    over 1:0 2
    cd shown
    mkdir gone; echo back >gone/back; rm merged/more; rm -r again; ln -s merged again
    rm -r file; echo file >file; ln file link; rm replaced; mkdir replaced; echo x >replaced/x
    rm kept/deep/file; rmdir empty; mknod zero c 1 5
    cd ..; done_with
    show
"#;

/// Makes an archive in which the marks of overlayfs are those of AUFS: behind all else, or in front of it.
const AUFS: &str = r#"
    cp -a "$1" "$1.aufs"
    cd "$1.aufs"
    find . -type c | while read -r name; do
        test "$(stat -c %t:%T "$name")" = 0:0 || continue
        dir=$(dirname "$name"); touch -r "$dir" ../time
        rm "$name"; echo >"$dir/.wh.$(basename "$name")"; touch -r ../time "$dir"
    done
    find . -type d | while read -r dir; do
        getfattr -n trusted.overlay.opaque "$dir" >../log 2>&1 || continue
        touch -r "$dir" ../time; echo >"$dir/.wh..wh..opq"; touch -r ../time "$dir"
    done
    cd ..
    find "$1.aufs" -name '.wh.*' -printf '%P\n' >marks
    find "$1.aufs" ! -name '.wh.*' -printf './%P\n' >members
    pack() { tar -cf "$1.$2.tar" -C "$1.aufs" --no-recursion $ALL --xattrs-exclude='trusted.overlay.*' -T $3 -T $4; }
    pack "$1" aufs members marks
    pack "$1" first marks members
"#;

/// A directory with mounts in it.
struct Shop(TempDir);

impl Shop {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script there.
    fn run(&self, script: &str, arguments: &[&str]) {
        let shell = Command::new("sh")
            .args(["-eu", "-c", script, "sh"])
            .args(arguments)
            .env("ALL", ALL)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&shell.stderr);
        assert!(shell.status.success(), "{said}");
    }

    fn image(&self, input: Input<'_>, options: &Options) -> Vec<u8> {
        let out = TempDir::new().unwrap();
        let image = out.path().join("image");
        build(&image, input, options).unwrap();
        fs::read(image).unwrap()
    }

    fn archive(&self, name: &str) -> Layer<'static> {
        Layer::Tar(Archive::open(&self.path(name)).unwrap())
    }

    fn stream(&self, name: &str) -> Layer<'static> {
        let file = File::open(self.path(name)).unwrap();
        Layer::Tar(Archive::from_reader(name, file))
    }

    /// The error of building some archives.
    fn error(&self, names: &[&str]) -> Error {
        let layers: Vec<_> = names.iter().map(|name| self.archive(name)).collect();
        build(&self.path("image"), layers, &Options::default()).unwrap_err()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let shown = self.path("shown");
        let _ = Command::new("umount").arg(shown).output();
    }
}

fn option_sets() -> Vec<Options> {
    let plain = Options::default();
    let mut labels = FileContexts::default();
    labels.read(b"/.* system_u:object_r:a_t:s0\n").unwrap();
    let mut compression = Compression::new(Effort::High(9));
    compression.pcluster_bytes = 65536;
    vec![
        Options {
            hard_dereference: true,
            holes: Holes::Keep,
            ..plain.clone()
        },
        Options {
            xattr_share_above: None,
            compression: Some(compression),
            fragments: Some(Fragments::default()),
            dedupe: true,
            inline_tails: true,
            ..plain.clone()
        },
        Options {
            exclude: vec![
                Exclude::Path(b"kept/deep".into()),
                Exclude::pattern("^[a-f]*ile$").unwrap(),
            ],
            fixed_time: Some(7),
            strip_overlay: true,
            ..plain.clone()
        },
        Options {
            force_gid: Some(7),
            uid_offset: 3,
            clamp_time: Some(1_650_000_000),
            file_contexts: Some(Arc::new(labels)),
            order: Order::Kind,
            ..plain.clone()
        },
        plain,
    ]
}

/// Compares the images of layers that a script writes with those of what overlayfs shows of them.
fn compare(script: &str, options: &[Options]) {
    let shop = Shop::new();
    shop.run(&[OVER, script].concat(), &[]);
    for layer in ["0", "1", "2"] {
        shop.run(r#"tar -cf "$1.tar" $ALL -C "$1" ."#, &[layer]);
        shop.run(AUFS, &[layer]);
    }
    let paths = ["0", "1", "2"].map(|layer| shop.path(layer));
    let directory = |layer: usize| Layer::Directory(&paths[layer]);
    for options in options {
        let expected = shop.image(Input::from(&shop.path("shown")), options);
        let archives = |names: [&str; 3]| names.map(|name| shop.archive(name)).into();
        let mixes: [(&str, Vec<Layer<'_>>); 6] = [
            (
                "directories",
                vec![directory(0), directory(1), directory(2)],
            ),
            ("archives", archives(["0.tar", "1.tar", "2.tar"])),
            ("AUFS", archives(["0.tar", "1.aufs.tar", "2.aufs.tar"])),
            (
                "marks in front",
                archives(["0.tar", "1.first.tar", "2.first.tar"]),
            ),
            (
                "streams",
                ["0.tar", "1.aufs.tar", "2.tar"]
                    .map(|name| shop.stream(name))
                    .into(),
            ),
            (
                "a mix",
                vec![
                    shop.archive("0.tar"),
                    directory(1),
                    shop.archive("2.aufs.tar"),
                ],
            ),
        ];
        for (what, layers) in mixes {
            let image = shop.image(layers.into(), options);
            assert!(image == expected, "{what}: {options:?}: {script}");
        }
    }
}

#[test]
fn layers_give_the_image_of_what_overlayfs_shows() {
    match is_root() {
        true => compare(LAYERS, &option_sets()),
        false => missing_judge("root, for overlayfs"),
    }
}

/// A script that changes anything at random, in each of three layers.
fn changes(random: &mut Random) -> String {
    let mut script = String::from("cd 0; ");
    for layer in 0..3 {
        for number in 0..40 {
            let mut path = || {
                let names =
                    (0..=random.below(3)).map(|_| ["a", "b", "c"][random.below(3) as usize]);
                names.collect::<Vec<_>>().join("/")
            };
            let (one, other) = (path(), path());
            let change = match random.below(9) {
                0 | 1 => format!("mkdir -p {one}"),
                2 | 3 => format!("seq {number}000 >{one}"),
                4 => format!("rm -rf {one}"),
                5 => format!("rm -rf {one}; mkdir {one}; echo >{one}/a"),
                6 => format!("ln {one} {other}"),
                7 => format!("ln -s {one} {other}"),
                _ => format!("mv {one} {other}"),
            };
            script += &format!("{{ {change}; }} 2>../said || true; ");
        }
        script += match layer {
            0 => "cd ..; over 0 1; cd shown; ",
            1 => "cd ..; done_with; over 1:0 2; cd shown; ",
            _ => "cd ..; done_with; show",
        };
    }
    script
}

#[test]
fn whatever_changed_in_layers_is_in_the_image() {
    if !is_root() {
        return missing_judge("root, for overlayfs");
    }
    for seed in 1..=8 {
        let script = changes(&mut Random::new(seed * 77));
        compare(&script, &[Options::default()]);
    }
}

#[test]
fn attributes_mean_what_overlayfs_takes_them_for() {
    if !is_root() {
        return missing_judge("root, for overlayfs");
    }
    let shop = Shop::new();
    shop.run(
        "mkdir -p 0/a 0/b 1/a 1/b shown; echo x >0/a/gone; echo x >0/a/kept; echo x >0/b/hidden
        >1/a/gone; setfattr -n trusted.overlay.whiteout -v y 1/a/gone
        setfattr -n trusted.overlay.opaque -v x 1/a 1; setfattr -n trusted.overlay.opaque -v y 1/b
        setfattr -n trusted.overlay.origin -v x 1/b
        setfattr -n trusted.overlay.overlay.opaque -v y 1/a 1/b
        mount -t overlay -o lowerdir=1:0 overlay shown",
        &[],
    );
    let options = Options::default();
    let expected = shop.image(Input::from(&shop.path("shown")), &options);
    let (lower, upper) = (shop.path("0"), shop.path("1"));
    let layers = vec![Layer::Directory(&lower), Layer::Directory(&upper)];
    assert!(shop.image(layers.into(), &options) == expected);
}

/// Makes `link.tar`, in which `to` is a hard link to `at`, which is not in it.
const LINK: &str = r#"
    mkdir links; cd links; mkdir -p "$(dirname "$1")"; echo x >"$1"; ln "$1" to
    tar -cf ../link.tar "$1" to; tar --delete -f ../link.tar "$1"; cd ..
"#;

#[test]
fn a_link_to_what_only_a_lower_layer_has_is_a_name_of_that() {
    let shop = Shop::new();
    shop.run(LINK, &["deep/at"]);
    shop.run(
        "mkdir -p lower/deep; seq 5000 >lower/deep/at; tar -cf lower.tar -C lower .
        cp -a lower merged; ln merged/deep/at merged/to; touch -r lower merged
        mkdir middle; tar -cf middle.tar -C middle --files-from /dev/null",
        &[],
    );
    let lower = shop.path("lower");
    let options = Options {
        fixed_time: Some(7),
        ..Options::default()
    };
    let expected = shop.image(Input::from(&shop.path("merged")), &options);
    for lower in [Layer::Directory(&lower), shop.archive("lower.tar")] {
        let layers = vec![lower, shop.archive("middle.tar"), shop.archive("link.tar")];
        assert!(shop.image(layers.into(), &options) == expected);
    }
}

#[test]
fn a_link_to_nothing_is_named_with_its_place() {
    let shop = Shop::new();
    shop.run(LINK, &["at"]);
    shop.run(
        "mkdir -p other/at; tar -cf directory.tar -C other .; rmdir other/at; tar -cf empty.tar -C other .
        echo >other/.wh.at; tar -cf gone.tar -C other .; rm other/.wh.at; echo >other/at; tar -cf file.tar -C other .",
        &[],
    );
    let neither = "which neither a member before it nor a layer below it has";
    for (lower, expected) in [
        (&["empty.tar"][..], neither),
        (&["file.tar", "gone.tar"], neither),
        (&["directory.tar"], "a directory"),
    ] {
        let names: Vec<_> = lower.iter().copied().chain(["link.tar"]).collect();
        match shop.error(&names) {
            Error::Archive {
                path,
                member,
                offset: 0,
                reason,
            } => {
                assert_eq!((path, &member[..]), (shop.path("link.tar"), &b"to"[..]));
                assert_eq!(reason, format!("it is a hard link to `at`, {expected}"));
            }
            other => panic!("{lower:?}: {other}"),
        }
    }
}

#[test]
fn parents_that_no_member_is_have_the_properties_of_lower_layers() {
    let shop = Shop::new();
    shop.run(
        "mkdir -p lower/dir upper/dir; echo x >upper/dir/new; echo y >lower/dir/old; chmod 711 lower/dir
        touch -d @1500000000 lower/dir/old lower/dir lower
        tar -cf lower.tar $ALL -C lower .; tar -cf upper.tar $ALL -C upper dir/new
        cp -a lower merged; cp -a upper/dir/new merged/dir
        touch -d @1500000000 merged/dir merged",
        &[],
    );
    let options = Options::default();
    let expected = shop.image(Input::from(&shop.path("merged")), &options);
    let layers = vec![shop.archive("lower.tar"), shop.archive("upper.tar")];
    assert!(shop.image(layers.into(), &options) == expected);
}

#[test]
fn what_overlayfs_has_elsewhere_is_refused() {
    if !is_root() {
        return missing_judge("root, for attributes");
    }
    let shop = Shop::new();
    shop.run(
        "mkdir -p lower upper/dir; setfattr -n trusted.overlay.redirect -v old upper/dir",
        &[],
    );
    let paths: [&Path; 2] = [&shop.path("lower"), &shop.path("upper")];
    let layers: Vec<_> = paths.into_iter().map(Layer::Directory).collect();
    let error = build(&shop.path("image"), layers, &Options::default()).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("upper/dir: its attribute trusted.overlay.redirect"),
        "{said}"
    );
}

#[test]
fn there_are_1_to_500_layers() {
    let shop = Shop::new();
    shop.run("mkdir dir; echo x >dir/file", &[]);
    let dir = shop.path("dir");
    let layers = |count: usize| -> Vec<_> { (0..count).map(|_| Layer::Directory(&dir)).collect() };
    for (count, expected) in [
        (0, "there is no layer to build an image of"),
        (501, "501 layers; 500 are the most"),
    ] {
        let error = build(&shop.path("image"), layers(count), &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let options = Options::default();
    let expected = shop.image(Input::from(&dir), &options);
    assert!(shop.image(layers(1).into(), &options) == expected);
    assert!(shop.image(layers(500).into(), &options) == expected);
}
