//! Tests settings that go together: `--small`, `--balanced`, `--fast`.

use std::fs;

use anteros_tests::trees::words;

use crate::{Workshop, same};

/// A workshop whose source has some files that are like each other.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for n in 0..60 {
        let directory = shop.path(&format!("src/in {}", n % 7));
        fs::create_dir_all(&directory).unwrap();
        let name = format!("words {}", n % 20);
        fs::write(directory.join(name), words(n % 50, 9000)).unwrap();
    }
    shop
}

#[test]
fn presets_are_the_settings_that_help_tells() {
    let shop = shop();
    let help = shop.good("mkfs --help");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (preset, told) in [
        (
            "--small",
            "-zlzma,9 -C1M -Eall-fragments,dedupe,ztailpacking --order=kind --compress-directories",
        ),
        ("--balanced", "-zlz4hc,9 -C64K"),
        ("--fast", "-zlz4 -C64K"),
    ] {
        shop.good(&format!("mkfs preset src {preset} --verify"));
        shop.good("check preset");
        shop.good(&format!("mkfs told src {told}"));
        assert!(same(&shop.path("preset"), &shop.path("told")), "{preset}");
        assert!(help.contains(told), "{told}");
    }
    let size = |name: &str| fs::metadata(shop.path(name)).unwrap().len();
    shop.good("mkfs small src --small");
    shop.good("mkfs default src");
    assert!(size("small") < size("default"));
}

#[test]
fn the_last_preset_counts_and_what_is_told_counts_more() {
    let shop = shop();
    for (one, other) in [
        ("--small --fast", "--fast"),
        ("--fast --small --small", "--small"),
        ("--small -znone", "-znone -Ededupe --order=kind"),
        (
            "--small --zD=0",
            "-zlzma,9 -C1M -Eall-fragments,dedupe,ztailpacking --order=kind",
        ),
        (
            "--small -zzstd,19",
            "-zzstd,19 -C1M -Eall-fragments,dedupe,ztailpacking --order=kind --compress-directories",
        ),
        (
            "-C16K -E^dedupe --small",
            "-zlzma,9 -C16K -Eall-fragments,ztailpacking --order=kind --compress-directories",
        ),
        (
            "--small -b512",
            "-b512 -zlzma,9 -C128K -Eall-fragments,dedupe,ztailpacking --order=kind --compress-directories",
        ),
        (
            "--order=path --small",
            "-zlzma,9 -C1M -Eall-fragments,dedupe,ztailpacking --order=path --compress-directories",
        ),
    ] {
        shop.good(&format!("mkfs one src {one}"));
        shop.good(&format!("mkfs other src {other}"));
        assert!(same(&shop.path("one"), &shop.path("other")), "{one}");
    }
}
