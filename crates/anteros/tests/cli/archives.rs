//! Archives as sources of images: in files and on standard input, also as programs call mkfs.erofs for them.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use anteros_tests::host::HostFs;
use anteros_tests::judge;
use anteros_tests::manifest::manifest;
use anteros_tests::mount::KernelMount;
use anteros_tests::peers::Peers;

use crate::{Run, Workshop, run};

/// A workshop with an archive of `src`, and another name for the program.
fn shop() -> Workshop {
    let shop = Workshop::new();
    symlink(&shop.program, shop.path("mkfs.erofs")).unwrap();
    tar(&shop, "-cf archive --format=posix -C src .");
    shop
}

fn tar(shop: &Workshop, arguments: &str) {
    let mut tar = Command::new("tar");
    tar.args(arguments.split_whitespace());
    let done = run(tar.current_dir(shop.path("")));
    assert_eq!((done.status, &done.err[..]), (Some(0), ""), "{arguments}");
}

/// Runs a script of the shell's in the workshop.
fn script(shop: &Workshop, script: &str) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]).current_dir(shop.path(""));
    run(shell.env_remove("SOURCE_DATE_EPOCH").env_remove("TMPDIR"))
}

fn image(shop: &Workshop) -> Vec<u8> {
    let image = fs::read(shop.path("image")).unwrap();
    fs::remove_file(shop.path("image")).unwrap();
    image
}

#[test]
fn an_archive_gives_the_image_of_its_directory() {
    let shop = shop();
    shop.good("mkfs image src");
    let expected = image(&shop);
    for commands in [
        "./anteros mkfs image archive",
        "./anteros mkfs image archive --tar=f",
        "./anteros mkfs image - <archive",
        "./anteros mkfs image --tar=f <archive",
        "cat archive | ./anteros mkfs image -",
        "mkfifo pipe; (sleep 1; cat archive >pipe)& ./anteros mkfs image pipe; wait; rm pipe",
        "gzip -c archive >packed; ./anteros mkfs image packed; rm packed",
        "gzip -c archive | ./anteros mkfs image -",
    ] {
        let done = script(&shop, commands);
        assert_eq!((done.status, &done.err[..]), (Some(0), ""), "{commands}");
        assert!(image(&shop) == expected, "{commands}");
    }
    assert_eq!(shop.left(), ["archive", "mkfs.erofs"]);
}

#[test]
fn programs_that_call_mkfs_erofs_find_what_they_look_for() {
    let shop = shop();
    let help = script(&shop, "./mkfs.erofs --help");
    assert!(help.out.contains("--tar="), "{}", help.out);
    let uuid = "-Uc1b9d5a2-f162-11cf-9ece-0020afc76f16";
    let times = "-T0 --mkfs-time";
    let same = format!("./mkfs.erofs --quiet -Enoinline_data -T0 --mkfs-time {uuid} image src");
    assert_eq!(script(&shop, &same).status, Some(0));
    let expected = image(&shop);
    for line in [
        format!("--tar=f --quiet -Enoinline_data {times} {uuid} image <archive"),
        format!("--tar=f --sort=none --quiet -Enoinline_data {times} {uuid} image archive"),
        format!(
            "--tar=f --ungzip --quiet --sort path -Enoinline_data {times} {uuid} image archive"
        ),
        format!("--tar=f --unxz --gzip --unlzma -Enoinline_data {times} {uuid} image archive"),
    ] {
        let done = script(&shop, &format!("./mkfs.erofs {line}"));
        assert_eq!((done.status, &done.err[..]), (Some(0), ""), "{line}");
        assert!(image(&shop) == expected, "{line}");
    }
    for (line, said) in [
        ("--tar=headerball,map image archive", "maps of the source"),
        (
            "--tar=f --sort=size image archive",
            "path and none are known",
        ),
        ("image archive", "--tar=f packs an archive"),
        ("image", "SOURCE"),
    ] {
        let refused = script(&shop, &format!("./mkfs.erofs {line}"));
        assert_eq!(refused.status, Some(2), "{line}: {refused:?}");
        assert!(refused.err.contains(said), "{line}: {refused:?}");
    }
}

#[test]
fn what_is_wrong_with_an_archive_is_told() {
    let shop = shop();
    let whole = fs::read(shop.path("archive")).unwrap();
    fs::write(shop.path("cut"), &whole[..whole.len() / 2]).unwrap();
    let lzip = [&b"LZIP\x01"[..], &whole].concat();
    fs::write(shop.path("lzip"), lzip).unwrap();
    for (status, arguments, said) in [
        (
            2,
            "mkfs image archive --verify",
            "anteros verify IMAGE DIRECTORY",
        ),
        (
            3,
            "mkfs image cut",
            "the archive ends within it; was it cut short?",
        ),
        (3, "mkfs image cut", "hint: `tar -tvf`"),
        (4, "mkfs image lzip", "lzip is not supported"),
        (
            3,
            "mkfs image -",
            "standard input: the member at byte 0: the archive is empty",
        ),
    ] {
        let told = shop.bad(status, arguments);
        assert!(told.contains(said), "{arguments}: {told}");
    }
    let mut command = shop.command("mkfs image -");
    let archive = File::open(shop.path("archive")).unwrap();
    let mut cat = Command::new("cat");
    let cat = cat.stdin(archive).stdout(Stdio::piped()).spawn();
    command.stdin(cat.unwrap().stdout.take().unwrap());
    let told = run(command.env("TMPDIR", "missing"));
    assert_eq!(told.status, Some(5), "{told:?}");
    let said = "missing: cannot keep the content of the archive there";
    assert!(told.err.contains(said), "{told:?}");
    assert!(told.err.contains("hint: TMPDIR"), "{told:?}");
    assert!(!shop.path("image").exists());
}

#[test]
fn whiteouts_become_those_of_overlayfs_or_nothing() {
    let shop = Workshop::new();
    let make = "ln -s anteros mkfs.erofs; mkdir layer; cd layer
        touch .wh.gone; mkdir opaque; touch opaque/.wh..wh..opq opaque/new
        tar -cf ../archive .";
    assert_eq!(script(&shop, make).status, Some(0));
    let list = |options: &str| {
        let line = format!("./mkfs.erofs --tar=f {options} --quiet -Enoinline_data image <archive");
        let done = script(&shop, &line);
        assert_eq!((done.status, &done.err[..]), (Some(0), ""), "{line}");
        let names = shop.good("ls -R image");
        let opaque = shop.good("dump --path opaque image");
        (
            names.contains("gone"),
            names.contains(".wh."),
            opaque.contains("trusted.overlay.opaque"),
        )
    };
    assert_eq!(list(""), (true, true, false));
    assert_eq!(list("--aufs"), (true, false, true));
    assert_eq!(list("--aufs --ovlfs-strip=0"), (true, false, true));
    assert_eq!(list("--aufs --ovlfs-strip"), (false, false, false));
}

/// Content of a stream that is stored as it is is written to the image alone, in the order in which it comes.
#[test]
fn a_stream_can_be_stored_in_its_own_order() {
    if !judge::is_root() {
        return;
    }
    let shop = shop();
    let pack = "mkdir src/a src/b full; head -c 3000000 /dev/urandom >src/b/noise
        head -c 5000 /dev/urandom >src/a/small; head -c 4096 /dev/zero >src/a/block; >src/a/empty
        ln src/b/noise src/a/link
        truncate -s 1M src/sparse; echo end >>src/sparse
        tar -cf packed --format=posix --sparse -C src b a hello sub symlink sparse .";
    assert_eq!(script(&shop, pack).status, Some(0));
    let options = "-Enoinline_data -b4096";
    for command in [
        format!("./mkfs.erofs --tar=f --quiet {options} image"),
        format!("./mkfs.erofs --tar=f --sort=none --quiet {options} image"),
        format!("./anteros mkfs --quiet --order=stream -znone {options} image -"),
        format!("./anteros mkfs --quiet --order=stream -znone {options} --dsunit=4 image -"),
        format!("./anteros mkfs --quiet --order=stream -znone {options} --verity - - >image"),
    ] {
        let commands = format!(
            "mount -t tmpfs -o size=1M full full; cat packed | TMPDIR={{}} {command}
            umount full; ./anteros check image; ./anteros verify image src"
        );
        // What is sparse is kept there meanwhile, and so is an image for a pipe.
        let place = if command.ends_with(">image") {
            "."
        } else {
            "full"
        };
        let told = run(&mut shop.apart(&commands.replace("{}", place)));
        assert_eq!((told.status, &told.err[..]), (Some(0), ""), "{command}");
        if let Some(peers) = Peers::find() {
            let fsck = run(peers.command("fsck.erofs").arg(shop.path("image")));
            assert_eq!(fsck.status, Some(0), "{fsck:?}");
        }
        shop.good("mkfs other src --quiet -znone -Enoinline_data");
        let len = |name: &str| fs::metadata(shop.path(name)).unwrap().len();
        if !command.contains("dsunit") && !command.contains("verity") {
            assert_eq!(len("image"), len("other"), "{command}");
        }
        fs::remove_file(shop.path("image")).unwrap();
    }
    // An archive that is broken leaves what was there.
    shop.good("mkfs image src --quiet");
    let before = fs::read(shop.path("image")).unwrap();
    let cut = "head -c 2000000 packed | ./mkfs.erofs --tar=f --sort=none -Enoinline_data image";
    assert_eq!(script(&shop, cut).status, Some(3));
    assert!(fs::read(shop.path("image")).unwrap() == before);
}

#[test]
fn a_full_disk_beside_the_image_is_named_with_the_way_out() {
    if !judge::is_root() {
        return;
    }
    let shop = shop();
    let noise = "head -c 3000000 /dev/urandom >src/noise; tar -cf archive -C src .";
    assert_eq!(script(&shop, noise).status, Some(0));
    let commands = "mkdir full; mount -t tmpfs -o size=1M full full
        cat archive | TMPDIR=full ./anteros mkfs image - && exit 1 || echo $?
        df --output=used full | tail -1
        cat archive | ./anteros mkfs --quiet image -
        umount full";
    let told = run(&mut shop.apart(commands));
    let out: Vec<_> = told.out.split_whitespace().collect();
    assert_eq!(
        (told.status, &out[..]),
        (Some(0), &["5", "0"][..]),
        "{told:?}"
    );
    let said = "full: cannot keep the content of the archive there, of which ";
    assert!(told.err.contains(said), "{told:?}");
    assert!(told.err.contains("hint: TMPDIR names another"), "{told:?}");
}

#[test]
fn overlayfs_shows_layers_as_they_were_meant() {
    if !judge::has_kernel() || !judge::has_file_system("overlay") {
        return;
    }
    let shop = Workshop::new();
    let make = "mkdir -p lower/opaque/old lower/again layer/opaque layer/again lower/kept
        touch lower/gone lower/here lower/opaque/x lower/again/x lower/kept/x
        touch layer/.wh.gone layer/opaque/.wh..wh..opq layer/opaque/new layer/.wh.again layer/new
        tar -cf lower.tar -C lower .
        tar -cf layer.tar -C layer .
        ./anteros mkfs --quiet lower.image lower.tar
        ./anteros mkfs --quiet --aufs layer.image layer.tar";
    let made = script(&shop, make);
    assert_eq!(made.status, Some(0), "{made:?}");
    let shown = "mkdir one two all
        mount -o loop,ro lower.image one
        mount -o loop,ro layer.image two
        mount -t overlay -o lowerdir=two:one overlay all
        (cd all && find . | sort)
        umount all two one";
    let shown = run(&mut shop.apart(shown));
    assert_eq!(shown.status, Some(0), "{shown:?}");
    let expected = [
        ".",
        "./again",
        "./here",
        "./kept",
        "./kept/x",
        "./new",
        "./opaque",
        "./opaque/new",
    ];
    assert_eq!(shown.out.lines().collect::<Vec<_>>(), expected);
}

/// GNU tar extracts what the kernel shows.
#[test]
fn the_kernel_shows_what_gnu_tar_extracts() {
    if !judge::has_kernel() {
        return;
    }
    let shop = Workshop::new();
    let make = "mkdir src/d src/x
        setfattr -n user.a -v value src/hello
        setfattr -n trusted.b -v value src/d
        setfacl -m u:7:r-x,d:g:9:rwx src/d
        truncate -s 1M src/x/sparse
        echo data | dd of=src/x/sparse bs=1 seek=500000 conv=notrunc status=none
        mkfifo src/x/fifo
        mknod src/x/disk b 8 1
        chown 7:8 src/x/disk
        touch -d @1.5 src/x/fifo";
    let made = script(&shop, make);
    assert_eq!(made.status, Some(0), "{made:?}");
    let all = "--acls --xattrs --xattrs-include=*";
    fs::create_dir(shop.path("out")).unwrap();
    tar(&shop, &format!("-cf archive --sparse {all} -C src ."));
    tar(&shop, &format!("-xpf archive {all} -C out"));
    shop.good("mkfs image archive");
    let mount = KernelMount::new(&shop.path("image"), &[]).unwrap();
    let [kernel, extracted] = [mount.path(), &shop.path("out")].map(HostFs::new);
    assert_eq!(manifest(&kernel).unwrap(), manifest(&extracted).unwrap());
}

#[test]
fn several_sources_are_layers_the_lowest_first() {
    let shop = shop();
    let made = script(
        &shop,
        "mkdir upper merged; cp -a src/. merged; echo new >upper/new; cp -a upper/new merged
        touch -r upper merged; tar -cf upper.tar --format=posix -C upper .
        touch gone; tar -rf upper.tar --transform s/gone/.wh.kept/ gone
        echo kept >kept; tar -cf kept.tar --format=posix -C src . -C .. kept; rm kept gone
        ./anteros mkfs --quiet image merged",
    );
    assert_eq!((made.status, &made.err[..]), (Some(0), ""));
    let expected = image(&shop);
    for commands in [
        "./anteros mkfs image src upper",
        "./anteros mkfs image archive upper",
        "./anteros mkfs image kept.tar upper.tar",
        "./anteros mkfs image kept.tar --aufs --ovlfs-strip upper.tar",
        "./anteros mkfs --tar=f image kept.tar upper.tar",
        "./anteros mkfs image src - <upper.tar",
        "gzip -c upper.tar | ./anteros mkfs image kept.tar -",
        "./mkfs.erofs --quiet -zlz4hc,9 -C65536 --tar=f image kept.tar upper.tar",
    ] {
        let done = script(&shop, commands);
        assert_eq!((done.status, &done.err[..]), (Some(0), ""), "{commands}");
        assert!(image(&shop) == expected, "{commands}");
    }
    shop.good("mkfs old src");
    for (arguments, said) in [
        ("--verify image src upper", "the sources are layers"),
        ("image - src -", "can be but one of the sources"),
        (
            "--tar=f image old archive",
            "old: is an EROFS image, and no archive",
        ),
        ("--tar=f image archive upper", "upper: is a directory"),
        ("image src missing", "missing: "),
    ] {
        let refused = script(&shop, &format!("./anteros mkfs {arguments} <archive"));
        assert!(refused.status != Some(0), "{arguments}");
        assert!(refused.err.contains(said), "{arguments}: {refused:?}");
    }
}

/// Makes an image layout of two images: `one` has two layers, `more` has one for each of two platforms.
const LAYOUT: &str = r#"
    mkdir -p oci/blobs/sha256 other; echo arm >other/arm; touch -d @1600000000 other/arm other
    tar -cf other.tar --format=posix -C other .
    T=application/vnd.oci.image
    blob() {
        digest=$(sha256sum <"$1" | cut -c -64); cp "$1" oci/blobs/sha256/$digest
        echo "{\"mediaType\":\"$2\",\"digest\":\"sha256:$digest\",\"size\":$(stat -c %s "$1")${3-}}"
    }
    named() { echo ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"$1\"}"; }
    platform() { echo ",\"platform\":{\"os\":\"linux\",\"architecture\":\"$1\"}"; }
    manifest() { echo "{\"schemaVersion\":2,\"config\":{},\"layers\":[$1]}" >json; }
    gzip -c upper.tar >upper.tar.gz
    lower=$(blob kept.tar $T.layer.v1.tar); upper=$(blob upper.tar.gz $T.layer.v1.tar+gzip)
    manifest "$lower,$upper"; one=$(blob json $T.manifest.v1+json "$(named one)")
    amd=$(blob json $T.manifest.v1+json "$(platform amd64)")
    manifest "$(blob other.tar $T.layer.v1.tar)"; arm=$(blob json $T.manifest.v1+json "$(platform arm64)")
    echo "{\"schemaVersion\":2,\"manifests\":[$arm,$amd]}" >json
    more=$(blob json $T.index.v1+json "$(named more)")
    echo '{"imageLayoutVersion":"1.0.0"}' >oci/oci-layout
    cp -r oci single
    echo "{\"schemaVersion\":2,\"manifests\":[$one,$more]}" >oci/index.json
    echo "{\"schemaVersion\":2,\"manifests\":[$one]}" >single/index.json
    echo "$upper" | sed 's/.*sha256:\([0-9a-f]*\).*/\1/' >upper.name
"#;

#[test]
fn an_image_layout_stands_for_its_layers() {
    let shop = shop();
    let made = script(
        &shop,
        "mkdir upper; echo new >upper/new; tar -cf upper.tar --format=posix -C upper .
        cp archive kept.tar; touch gone; tar -rf upper.tar --transform s/gone/.wh.kept/ gone",
    );
    assert_eq!((made.status, &made.err[..]), (Some(0), ""));
    let made = script(&shop, LAYOUT);
    assert_eq!((made.status, &made.err[..]), (Some(0), ""));
    let layers = "kept.tar upper.tar";
    for (source, layers) in [
        ("oci:single", layers),
        ("oci:oci:one", layers),
        ("oci:oci:more", layers),
        ("--platform linux/amd64 oci:oci:more", layers),
        ("--platform linux/arm64 oci:oci:more", "other.tar"),
        ("oci:single other", "kept.tar upper.tar other"),
        ("other oci:single", "other kept.tar upper.tar"),
    ] {
        shop.good(&format!("mkfs image {layers}"));
        let expected = image(&shop);
        shop.good(&format!("mkfs image {source}"));
        assert!(image(&shop) == expected, "{source}");
    }
    let refused = |arguments: &str, status: i32, said: &str| {
        let told = script(&shop, &format!("./anteros mkfs image {arguments}"));
        assert_eq!(told.status, Some(status), "{arguments}: {told:?}");
        assert!(told.err.contains(said), "{arguments}: {told:?}");
        assert!(!shop.path("image").exists());
    };
    refused("oci:oci:two", 2, "its images are one, more");
    refused("oci:oci", 2, "name one: oci:oci:one");
    refused(
        "oci:oci:more --platform linux/riscv64",
        2,
        "for this platform",
    );
    refused("oci:src", 5, "src/oci-layout");
    refused("oci:single --verify", 2, "the sources are layers");
    // Bytes behind the end of the archive, and in it, and a length.
    let name = fs::read_to_string(shop.path("upper.name")).unwrap();
    let blob = shop.path("single/blobs/sha256").join(name.trim());
    let whole = fs::read(&blob).unwrap();
    let mut changed = whole.clone();
    changed[4] ^= 1; // the time in the header of gzip
    fs::write(&blob, &changed).unwrap();
    refused("oci:single", 3, "its digest is sha256:");
    changed[whole.len() / 2] ^= 1;
    fs::write(&blob, &changed).unwrap();
    refused("oci:single", 3, "its digest is sha256:");
    fs::write(&blob, [&whole[..], b"more"].concat()).unwrap();
    refused("oci:single", 3, " bytes, not ");
    fs::write(shop.path("single/index.json"), "[[[[").unwrap();
    refused("oci:single", 3, "index.json: ");
}

#[test]
fn a_manifest_gives_the_image_of_its_directory() {
    let shop = Workshop::new();
    let list = "{ echo '#mtree'; cd src; find . -type d -printf 'PATH%p type=dir mode=%m uid=%U gid=%G time=%T@\\n' \
        -o -type l -printf 'PATH%p type=link link=%l mode=%m uid=%U gid=%G time=%T@\\n' \
        -o -type f -printf 'PATH%p type=file size=%s mode=%m uid=%U gid=%G time=%T@ nlink=%n inode=%i\\n' |
        sed 's/^PATH//; s/\\(time=[0-9]*[.][0-9]\\{9\\}\\)[0-9]*/\\1/'; } >list";
    let made = script(&shop, list);
    assert_eq!((made.status, &made.err[..]), (Some(0), ""));
    shop.good("mkfs image src -x-1");
    let expected = image(&shop);
    shop.good("mkfs image mtree:list --content-root src");
    assert!(image(&shop) == expected);
    let piped = "./anteros mkfs image mtree:- --content-root src <list";
    assert_eq!(script(&shop, piped).status, Some(0));
    assert!(image(&shop) == expected);
    for (status, arguments, said) in [
        (
            3,
            "mkfs image mtree:list",
            "hint: --content-root DIR names it",
        ),
        (
            2,
            "mkfs image src --content-root src",
            "a meaning for manifests alone",
        ),
        (
            2,
            "mkfs image mtree:list --content-root src --verify",
            "the source is a manifest",
        ),
        (2, "mkfs image mtree:list --aufs", "for archives alone"),
        (2, "mkfs image mtree:- -", "standard input can be but one"),
        (
            3,
            "mkfs image composefs-dump:list",
            "list:1: a line of 1 fields",
        ),
        (
            5,
            "mkfs image mtree:missing",
            "missing: cannot open the manifest",
        ),
        (
            5,
            "mkfs image mtree:list --content-root missing",
            "missing: cannot open the directory",
        ),
    ] {
        let told = shop.bad(status, arguments);
        assert!(told.contains(said), "{arguments}: {told}");
        assert!(!shop.path("image").exists());
    }
}

/// Makes image layouts as umoci and skopeo write them: `one` has a layer, `two` has another over it and is for ARM. In the
/// layout `nested` both are listed by an index that the index lists. The directory `expected` is the tree of `two`.
const BY_TOOLS: &str = r#"
    unpack() { umoci unpack --image layout:$1 $2; } >&2
    repack() { umoci repack --image layout:$1 $2; } >&2
    umoci init --layout layout; umoci new --image layout:one; unpack one first
    cp -a src/. first/rootfs; echo gone >first/rootfs/gone; repack one first
    unpack one second; rm second/rootfs/gone; echo new >second/rootfs/sub/new; chown 7:8 second/rootfs/hello
    repack two second; umoci config --image layout:two --architecture arm64
    unpack two third; mv third/rootfs expected
    skopeo copy oci:layout:two oci-archive:archive.oci:two >&2
    skopeo copy oci:layout:two docker-archive:archive.docker:example:2 >&2
    skopeo copy --dest-compress-format zstd oci:layout:two oci:again:two >&2
    cp -r layout nested; cd nested
    sed 's/"annotations":{[^}]*}/"annotations":{}/g' index.json >list
    digest=$(sha256sum <list | cut -c -64); size=$(stat -c %s list); mv list blobs/sha256/$digest
    type=application/vnd.oci.image.index.v1+json
    echo "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"$type\",\"digest\":\"sha256:$digest\",\"size\":$size}]}" >index.json
"#;

#[test]
fn what_umoci_and_skopeo_write_is_a_source() {
    let mut programs = ["umoci", "skopeo"].iter();
    if !programs.all(|program| judge::has_program(program)) {
        return;
    }
    if !judge::is_root() {
        judge::missing("root (umoci sets owners)");
        return;
    }
    let shop = Workshop::new();
    let made = script(&shop, BY_TOOLS);
    assert_eq!(made.status, Some(0), "{}", made.err);
    shop.good("mkfs image expected");
    let expected = image(&shop);
    for source in [
        "oci:layout:two",
        "--platform linux/arm64 oci:layout:two",
        "oci:archive.oci",
        "oci:archive.oci:two",
        "oci:archive.docker",
        "oci:archive.docker:example:2",
        "--platform linux/arm64 oci:archive.docker",
        "oci:again",
        "--platform linux/arm64 oci:nested",
    ] {
        shop.good(&format!("mkfs image {source}"));
        assert!(image(&shop) == expected, "{source}");
    }
    for (source, said) in [
        ("--platform linux/amd64 oci:layout:two", "for this platform"),
        (
            "--platform linux/amd64 oci:archive.docker",
            "for this platform",
        ),
        (
            "oci:archive.docker:example",
            "its images are docker.io/library/example:2",
        ),
        ("oci:archive.oci:three", "its images are two"),
        ("oci:nested --platform linux/riscv64", "for this platform"),
    ] {
        let told = shop.bad(2, &format!("mkfs image {source}"));
        assert!(told.contains(said), "{source}: {told}");
    }
    let told = script(
        &shop,
        "gzip -k archive.oci; ./anteros mkfs image oci:archive.oci.gz",
    );
    assert_eq!(told.status, Some(3), "{told:?}");
    assert!(told.err.contains("is not compressed itself"), "{told:?}");
}
