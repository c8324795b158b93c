//! A log as the upper directory of overlayfs, beside one on tmpfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anteros_tests::judge;
use rustix::fs::getxattr;

use crate::log::{mount, mounted, unmount};
use crate::{Workshop, run};

/// States what overlayfs does to its upper directory: copying up, whiteouts, opaque directories, files without a name.
const FIRST: &str = "
    echo more >> below/changed
    chmod 600 below/mode
    mv below/moved elsewhere
    mv below/covering below/covered
    rm below/gone
    rm -r below/tree
    mkdir below/tree
    echo new > below/tree/new
    ln below/linked another
    ln -s below/changed symlink
    mkdir -p own/dir
    echo own > own/file
    mv own/file own/dir/file
    truncate -s 3 below/cut
";

/// Changes after both have been mounted anew.
const SECOND: &str = "
    echo back > below/gone
    rm elsewhere another
    mv own/dir own/other
    mv below/changed own/changed
    rm -r below/tree
    echo over > below/covered
    mkdir below/moved
    rmdir below/moved
    rm below/mode
";

/// A mount for as long as this lives.
struct Layers(PathBuf);

impl Drop for Layers {
    fn drop(&mut self) {
        let _ = run(Command::new("umount")
            .args(["--quiet", "--lazy"])
            .arg(&self.0));
    }
}

fn kernel_mounts(kind: &str, options: &str, at: &Path) -> Layers {
    let mut mount = Command::new("mount");
    mount.args(["-t", kind, "-o", options, kind]).arg(at);
    let mounted = run(&mut mount);
    assert_eq!(mounted.status, Some(0), "{options}: {mounted:?}");
    Layers(at.to_owned())
}

/// Lays `NAME/upper` over `lower`, at `NAME.merged`.
fn lay(shop: &Workshop, lower: &str, name: &str) -> Layers {
    let path = |name: &str| shop.path(name).display().to_string();
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        path(lower),
        path(&format!("{name}/upper")),
        path(&format!("{name}/work"))
    );
    kernel_mounts("overlay", &options, &shop.path(&format!("{name}.merged")))
}

fn shell(place: &Path, script: &str) -> String {
    let mut shell = Command::new("sh");
    let said = run(shell.args(["-e", "-c", script]).current_dir(place));
    assert_eq!((said.status, &said.err[..]), (Some(0), ""), "{script}");
    said.out
}

/// All that is there, with attributes and content.
fn listed(place: &Path) -> String {
    shell(
        place,
        r"find . -type d -printf '%P %y %m %U %G\n' -o -printf '%P %y %m %U %G %n %s %l\n' | sort
          find . -type f -exec md5sum {} + | sort",
    )
}

fn fill(lower: &Path) {
    shell(
        lower,
        "mkdir -p below/tree/deep
         for name in changed mode moved covering covered gone linked cut tree/a tree/deep/b; do
             echo $name > below/$name
         done",
    );
}

/// Checks that the names and the contents of both are the same, and the marks that overlayfs has left in the upper
/// directories.
fn agree(shop: &Workshop, [one, other]: [&str; 2]) {
    for part in [".merged", "/upper"] {
        let [one, other] = [one, other].map(|name| listed(&shop.path(&format!("{name}{part}"))));
        assert_eq!(one, other, "{part}");
    }
}

/// Tells whether a log can be mounted below overlayfs here, and says so if it cannot.
fn has_layers() -> bool {
    if !judge::has_fuse() {
        return false;
    }
    let kinds = fs::read_to_string("/proc/filesystems").unwrap();
    let has = judge::is_root() && kinds.contains("\toverlay\n");
    if !has {
        judge::missing("overlayfs (only root can mount it)");
    }
    has
}

/// Tests that what overlayfs does on tmpfs it does on a log, also when both are mounted anew in between.
#[test]
fn a_log_is_an_upper_directory() {
    if !has_layers() {
        return;
    }
    let (shop, mut daemon) = mounted("64M");
    fs::create_dir(shop.path("plain")).unwrap();
    let _plain = kernel_mounts("tmpfs", "size=16m", &shop.path("plain"));
    let names = ["mnt", "plain"];
    for place in ["plain/lower", "mnt.merged", "plain.merged"] {
        fs::create_dir(shop.path(place)).unwrap();
    }
    fill(&shop.path("plain/lower"));
    for name in names {
        for part in ["upper", "work"] {
            fs::create_dir(shop.path(&format!("{name}/{part}"))).unwrap();
        }
    }
    for script in [FIRST, SECOND] {
        let layers = names.map(|name| lay(&shop, "plain/lower", name));
        for name in names {
            shell(&shop.path(&format!("{name}.merged")), script);
        }
        agree(&shop, names);
        let opaque = shop.path("mnt/upper/below/tree");
        let mut value = [0; 8];
        let is_opaque = getxattr(&opaque, "trusted.overlay.opaque", &mut value);
        assert_eq!(is_opaque.is_ok(), script == FIRST, "{is_opaque:?}");
        drop(layers);
        unmount(&shop, daemon);
        daemon = mount(&shop, "");
        let layers = names.map(|name| lay(&shop, "plain/lower", name));
        agree(&shop, names);
        drop(layers);
    }
    unmount(&shop, daemon);
}

/// Both layers in one log, mounted anew in between.
#[test]
fn a_log_is_both_layers() {
    if !has_layers() {
        return;
    }
    let (shop, mut daemon) = mounted("64M");
    fs::create_dir(shop.path("mnt.merged")).unwrap();
    for part in ["lower", "upper", "work"] {
        fs::create_dir(shop.path("mnt").join(part)).unwrap();
    }
    fill(&shop.path("mnt/lower"));
    let mut was = String::new();
    for script in ["", FIRST, SECOND] {
        let layers = lay(&shop, "mnt/lower", "mnt");
        let merged = shop.path("mnt.merged");
        if !was.is_empty() {
            assert_eq!(listed(&merged), was);
        }
        shell(&merged, script);
        was = listed(&merged);
        drop(layers);
        unmount(&shop, daemon);
        daemon = mount(&shop, "");
    }
    unmount(&shop, daemon);
}
