//! Tests `--compress-hints`: files that are compressed in another way than the rest, or not at all.

use std::fs;

use anteros_tests::trees::words;

use crate::{Workshop, same};

const HINTS: &str = "# as in a build system\n\n65536 1 [.]html$\n0 [.]png$\n";

/// A workshop whose source has a text, a page and a picture, and a file of hints.
fn shop() -> Workshop {
    let shop = Workshop::new();
    for (n, name) in ["text.txt", "sub/page.html", "sub/picture.png"]
        .iter()
        .enumerate()
    {
        fs::write(shop.path("src").join(name), words(n as u64, 200_000)).unwrap();
    }
    fs::write(shop.path("hints"), HINTS).unwrap();
    shop
}

#[test]
fn each_file_has_the_codec_of_its_hint() {
    let shop = shop();
    for packing in [
        "",
        " -Eall-fragments",
        " -Elegacy-compress,ztailpacking",
        " -b512",
    ] {
        let options = format!("-zlz4hc,9:lzma,9 -C4096 --compress-hints hints{packing}");
        shop.good(&format!("mkfs image src {options} --verify"));
        shop.good("check image");
        let extents = |path: &str| shop.good(&format!("dump image --path {path} --extents"));
        let page = extents("sub/page.html");
        assert!(page.contains("lzma in") && !page.contains("lz4"), "{page}");
        let picture = extents("sub/picture.png");
        assert!(
            !picture.contains("lz4") && !picture.contains("lzma"),
            "{picture}"
        );
        let text = extents("text.txt");
        assert!(!text.contains("lzma"), "{text}");
        assert_eq!(
            text.contains("fragment"),
            packing.contains("fragments"),
            "{text}"
        );
        let algorithms = shop.good("dump image --superblock");
        assert!(algorithms.contains(" lz4 lzma\n"), "{algorithms}");
        shop.good(&format!("mkfs again src {options} --workers 5 --memory 1"));
        assert!(same(&shop.path("image"), &shop.path("again")), "{packing}");
    }
}

#[test]
fn hints_that_no_file_has_leave_no_trace() {
    let shop = shop();
    fs::write(shop.path("hints"), "1M 1 [.]nothing$\n").unwrap();
    shop.good("mkfs with src -zlz4:lzma -C4096 --compress-hints hints");
    shop.good("mkfs without src -zlz4 -C4096");
    assert!(same(&shop.path("with"), &shop.path("without")));
}

#[test]
fn the_first_hint_counts() {
    let shop = shop();
    fs::write(shop.path("hints"), "0 page\n4096 1 .\n").unwrap();
    shop.good("mkfs image src -zlz4:zstd --compress-hints hints --verify");
    let page = shop.good("dump image --path sub/page.html --extents");
    assert!(!page.contains("zstd"), "{page}");
    let text = shop.good("dump image --path text.txt --extents");
    assert!(text.contains("zstd in"), "{text}");
}

#[test]
fn bad_hints_are_told_with_their_line() {
    let shop = shop();
    let hinted = "mkfs image src -zlz4 --compress-hints";
    let message = shop.bad(2, &format!("{hinted} hints"));
    assert!(
        message.contains("hints, line 3: -z has no codec 1"),
        "{message}"
    );
    let message = shop.bad(5, &format!("{hinted} nowhere"));
    assert!(message.contains("nowhere: No such file"), "{message}");
    let message = shop.bad(2, "mkfs image src -znone --compress-hints hints");
    assert!(
        message.contains("no meaning without compression"),
        "{message}"
    );
    assert_eq!(shop.left(), ["hints"]);
    fs::write(shop.path("hints"), "5000 page\n").unwrap();
    let run = shop.run(&format!("{hinted} hints"));
    assert_eq!(run.status, Some(0), "{run:?}");
    let warning = "hints, line 1: no cluster has 5000 bytes; the line is left out";
    assert!(run.err.contains(warning), "{run:?}");
}
