//! Tests layers of what changed from one image to another. What is applied to the older image must be the newer one: by our own
//! `mkfs`, to the byte, and by the kernel's overlayfs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anteros_tests::judge;
use anteros_tests::mount::KernelMount;
use anteros_tests::trees::words;
use rustix::fs::{XattrFlags, setxattr};

use crate::{Workshop, run};

/// Options by which images of a tree are the same whatever it comes from.
const OPTIONS: &str = "--quiet -zlz4 --holes=compress";

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
}

/// Builds images of `old` and `new`, and the layer `layer` of what changed.
fn build(shop: &Workshop) {
    shop.good(&format!("mkfs old.erofs old {OPTIONS}"));
    shop.good(&format!("mkfs new.erofs new {OPTIONS}"));
    shop.good("tar new.erofs --diff old.erofs -o layer --quiet");
    shop.good("check old.erofs");
}

/// The older image with the layer over it is the newer one.
fn judge_layer(shop: &Workshop, what: &str) {
    shop.good("tar old.erofs -o old.tar --quiet");
    shop.good(&format!("mkfs applied old.tar layer {OPTIONS}"));
    let [new, applied] = ["new.erofs", "applied"].map(|name| fs::read(shop.path(name)).unwrap());
    if new != applied {
        let told = shop.run("verify applied new");
        panic!("{what}: {told:?}\n{}", names(shop));
    }
    let more = "tar new.erofs --diff old.erofs -o more --quiet --workers 1";
    shop.good(more);
    let [layer, more] = ["layer", "more"].map(|name| fs::read(shop.path(name)).unwrap());
    assert!(layer == more, "{what}: another layer");
}

/// The names of the layer, one a line.
fn names(shop: &Workshop) -> String {
    let mut tar = Command::new("tar");
    let told = run(tar.arg("-tf").arg(shop.path("layer")));
    assert_eq!((told.status, &told.err[..]), (Some(0), ""));
    told.out
}

/// A tree with a bit of all.
fn tree(root: &Path) {
    for name in ["keep", "gone/below", "all/dir", "todir", "tofile", "one"] {
        let is_file = matches!(name, "todir");
        match is_file {
            true => write(&root.join(name), b"a file"),
            false => fs::create_dir_all(root.join(name)).unwrap(),
        }
    }
    for name in [
        "keep/same",
        "keep/content",
        "keep/mode",
        "keep/xattr",
        "gone/file",
        "gone/below/file",
        "all/1",
        "all/2",
        "all/dir/3",
        "tofile/x",
        "one/only",
        "linked",
        "split",
        "swap1",
        "swap2",
    ] {
        write(&root.join(name), &words(name.len() as u64, 20_000));
    }
    symlink("same", root.join("keep/symlink")).unwrap();
    for (from, to) in [
        ("linked", "linked2"),
        ("split", "split2"),
        ("swap1", "swap1b"),
        ("swap2", "swap2b"),
    ] {
        fs::hard_link(root.join(from), root.join(to)).unwrap();
    }
}

/// Changes it in as many ways.
fn change(root: &Path) {
    let at = |name: &str| root.join(name);
    let time = fs::metadata(at("keep/content"))
        .unwrap()
        .modified()
        .unwrap();
    write(&at("keep/content"), &words(99, 20_000));
    let file = fs::File::options()
        .write(true)
        .open(at("keep/content"))
        .unwrap();
    file.set_modified(time).unwrap();
    fs::set_permissions(at("keep/mode"), fs::Permissions::from_mode(0o4711)).unwrap();
    setxattr(at("keep/xattr"), "user.new", b"value", XattrFlags::empty()).unwrap();
    fs::remove_file(at("keep/symlink")).unwrap();
    symlink("content", at("keep/symlink")).unwrap();
    fs::remove_dir_all(at("gone")).unwrap();
    for name in ["all/1", "all/2", "one/only", "todir"] {
        fs::remove_file(at(name)).unwrap();
    }
    fs::remove_dir_all(at("all/dir")).unwrap();
    write(&at("all/other"), b"other");
    fs::create_dir(at("todir")).unwrap();
    write(&at("todir/inside"), b"inside");
    fs::remove_dir_all(at("tofile")).unwrap();
    write(&at("tofile"), b"a file");
    fs::create_dir_all(at("fresh/empty")).unwrap();
    fs::hard_link(at("linked"), at("linked3")).unwrap();
    fs::remove_file(at("split2")).unwrap();
    let time = fs::metadata(at("split")).unwrap().modified().unwrap();
    fs::copy(at("split"), at("split2")).unwrap();
    let file = fs::File::options().write(true).open(at("split2")).unwrap();
    file.set_modified(time).unwrap();
    fs::rename(at("swap1b"), at("x")).unwrap();
    fs::rename(at("swap2b"), at("swap1b")).unwrap();
    fs::rename(at("x"), at("swap2b")).unwrap();
}

fn shop() -> Workshop {
    let shop = Workshop::new();
    fs::create_dir(shop.path("old")).unwrap();
    tree(&shop.path("old"));
    let mut copy = Command::new("cp");
    let copied = run(copy
        .arg("-a")
        .args(["old", "new"])
        .current_dir(shop.dir.path()));
    assert_eq!(copied.status, Some(0), "{copied:?}");
    shop
}

#[test]
fn a_layer_over_the_older_image_is_the_newer_one() {
    let shop = shop();
    change(&shop.path("new"));
    build(&shop);
    judge_layer(&shop, "changes");
    let names = names(&shop);
    for name in [
        "keep/content",
        "keep/mode",
        "keep/xattr",
        "keep/symlink",
        ".wh.gone",
        "all/.wh..wh..opq",
        "all/other",
        "one/.wh.only",
        "todir/",
        "todir/inside",
        "tofile",
        "fresh/empty/",
        "linked",
        "linked2",
        "linked3",
        "split2",
    ] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
    for name in [
        "keep/same",
        "all/.wh.1",
        "gone",
        "split",
        "old",
        "tofile/.wh.x",
    ] {
        assert!(names.lines().all(|line| line != name), "{name}: {names}");
    }
}

/// Overlayfs shows the newer tree, of the older image and of one of the layer.
#[test]
fn the_kernel_applies_a_layer() {
    if !judge::has_kernel() || !judge::has_file_system("overlay") {
        return;
    }
    let shop = shop();
    change(&shop.path("new"));
    build(&shop);
    shop.good("mkfs layer.erofs layer --aufs --quiet");
    let [old, layer] =
        ["old.erofs", "layer.erofs"].map(|name| KernelMount::new(&shop.path(name), &[]).unwrap());
    let [old, layer] = [&old, &layer].map(|mount| mount.path().display().to_string());
    let stat = "find . -type f -exec stat -c '%n %a %u %s' {} + | sort";
    let script = format!(
        "mkdir merged; mount -t overlay -o lowerdir={layer}:{old} none merged; \
         diff -r --no-dereference new merged; \
         (cd new; {stat}) > a; (cd merged; {stat}) > b; diff a b"
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation=private", "sh", "-euc", &script]);
    let told = run(shell.current_dir(shop.dir.path()));
    assert_eq!(
        (told.status, &told.out[..], &told.err[..]),
        (Some(0), "", "")
    );
}

/// An image has changed in nothing from itself, whatever form it has.
#[test]
fn nothing_changes_from_an_image_to_itself() {
    let shop = shop();
    shop.good(&format!("mkfs old.erofs old {OPTIONS}"));
    for options in [
        "-znone",
        "--small",
        "-zlz4 -m4096 -Edot-omitted",
        "-b512 -x0",
    ] {
        shop.good(&format!("mkfs new.erofs new --quiet {options}"));
        shop.good("tar new.erofs --diff old.erofs -o layer --quiet");
        assert_eq!(names(&shop), "", "{options}");
    }
}

/// Trees of few names that change at random, so that all there is happens to the same names.
#[test]
fn whatever_changes_is_applied() {
    for seed in 1..=25_u64 {
        let shop = Workshop::new();
        let mut state = seed;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        fs::create_dir(shop.path("old")).unwrap();
        fiddle(&shop.path("old"), 60, &mut random);
        let mut copy = Command::new("cp");
        let copied = run(copy
            .arg("-a")
            .args(["old", "new"])
            .current_dir(shop.dir.path()));
        assert_eq!(copied.status, Some(0));
        fiddle(&shop.path("new"), 25, &mut random);
        build(&shop);
        judge_layer(&shop, &format!("seed {seed}"));
    }
}

/// Changes a tree at random, step by step; a step that is impossible is left out.
fn fiddle(root: &Path, steps: u32, random: &mut impl FnMut(u64) -> u64) {
    let dirs = ["", "a", "b", "a/a", "a/b", "b/a"];
    for _ in 0..steps {
        let mut path = || {
            let dir = dirs[random(6) as usize];
            root.join(dir)
                .join(["a", "b", "c", "d"][random(4) as usize])
        };
        let (one, other) = (path(), path());
        let text = format!("content {}", random(3));
        let _ = match random(9) {
            0 | 1 => fs::create_dir(&one),
            2 | 3 => fs::write(&one, text),
            4 => fs::remove_file(&one),
            5 => fs::remove_dir_all(&one),
            6 => fs::hard_link(&one, &other),
            7 => fs::rename(&one, &other),
            _ => symlink(text, &one),
        };
        // Times tell nothing, so that all else has to.
        for path in [&one, &other] {
            if let Ok(file) = fs::File::open(path) {
                let _ = file.set_modified(std::time::UNIX_EPOCH);
            }
        }
    }
}

#[test]
fn what_cannot_be_a_layer_is_refused() {
    let shop = shop();
    write(&shop.path("new/.wh.name"), b"");
    shop.good(&format!("mkfs old.erofs old {OPTIONS}"));
    shop.good(&format!("mkfs new.erofs new {OPTIONS}"));
    for (status, arguments, said) in [
        (
            4,
            "tar new.erofs --diff old.erofs -o x",
            "/.wh.name: in a layer its name",
        ),
        (3, "tar new.erofs --diff old -o x", "old"),
        (5, "tar new.erofs --diff nowhere -o x", "nowhere"),
        (
            2,
            "tar old.erofs --diff new.erofs -o new.erofs",
            "is an image that is read",
        ),
        (
            2,
            "tar old.erofs --diff new.erofs --path keep",
            "cannot be used with",
        ),
    ] {
        let status = if said == "old" { None } else { Some(status) };
        let told = shop.run(arguments);
        assert!(
            status.is_none() || told.status == status,
            "{arguments}: {told:?}"
        );
        assert!(
            told.status != Some(0) && told.err.contains(said),
            "{arguments}: {told:?}"
        );
    }
    assert!(!shop.path("x").exists());
    // Away from it, the name is no harm.
    shop.good("tar old.erofs --diff new.erofs -o layer --quiet");
    assert!(names(&shop).contains(".wh..wh.name"));
}
