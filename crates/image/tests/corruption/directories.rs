use super::*;

fn block(image: &Fixture, path: &str) -> Place {
    Place::Directory {
        nid: image.inode(path).nid,
        block: 0,
    }
}

#[test]
fn entry_tables_of_no_possible_length() {
    for nameoff in [0, 6, 13, 4096, 65532] {
        let image =
            Fixture::read("plain").dirent("many", 0, |entry| entry.nameoff = nameoff.into());
        let fault = Corrupt::DirentTable {
            nameoff,
            block_len: 4096,
        };
        refused(image.read_dir("many"), block(&image, "many"), fault);
        check_finds(&image, "the name table begins at");
    }
}

#[test]
fn names_outside_the_block() {
    let image = Fixture::read("plain").dirent("many", 3, |entry| entry.nameoff = 5000.into());
    let place = block(&image, "many");
    refused_as(image.read_dir("many"), place, |fault| {
        matches!(fault, Corrupt::DirentName { index: 2, .. })
    });
}

#[test]
fn names_that_run_backwards() {
    let image = Fixture::read("plain");
    let first = image.name_offset("many", 0) - image.data_offset("many");
    let image = image.dirent("many", 3, |entry| entry.nameoff = (first as u16).into());
    let place = block(&image, "many");
    refused_as(image.read_dir("many"), place, |fault| {
        matches!(fault, Corrupt::DirentName { index: 2, .. })
    });
}

#[test]
fn names_that_are_too_long() {
    let image = Fixture::read("plain");
    let beyond = image.name_offset("many", 8) - image.data_offset("many");
    let image = image.dirent("many", 3, |entry| entry.nameoff = (beyond as u16).into());
    let place = block(&image, "many");
    let fault = Corrupt::DirentNameLength { index: 2, len: 360 };
    refused(image.read_dir("many"), place, fault);
}

#[test]
fn names_that_are_empty() {
    let image = Fixture::read("plain");
    let last = image.read_dir("data").unwrap().len() - 1;
    let at = image.name_offset("data", last);
    let image = image.put(at, &[0]);
    let fault = Corrupt::DirentNameLength {
        index: last,
        len: 0,
    };
    refused(image.read_dir("data"), block(&image, "data"), fault);
}

#[test]
fn names_with_slash_or_nul() {
    for (byte, shown) in [(b'/', "/ello"), (0, "\\x00ello")] {
        let image = Fixture::read("plain");
        let index = image.entry_index("data", "hello");
        let at = image.name_offset("data", index);
        let image = image.put(at, &[byte]);
        let fault = Corrupt::DirentNameByte {
            index,
            name: shown.into(),
        };
        refused(image.read_dir("data"), block(&image, "data"), fault);
    }
}

#[test]
fn names_out_of_order_or_twice() {
    for name in ["aello", "empty"] {
        let image = Fixture::read("plain");
        let index = image.entry_index("data", "hello");
        assert_eq!(image.entry_index("data", "empty"), index - 1);
        let at = image.name_offset("data", index);
        let image = image.put(at, name.as_bytes());
        let (name, previous) = (name.into(), "empty".into());
        let fault = Corrupt::DirentOrder {
            index,
            name,
            previous,
        };
        refused(image.read_dir("data"), block(&image, "data"), fault);
        check_finds(&image, "does not sort after `empty`");
    }
}

#[test]
fn unknown_types() {
    for file_type in [0, 8, 255] {
        let image = Fixture::read("plain").dirent("data", 2, |entry| entry.file_type = file_type);
        let fault = Corrupt::DirentType {
            index: 2,
            file_type,
        };
        refused(image.read_dir("data"), block(&image, "data"), fault);
    }
}

#[test]
fn types_other_than_the_inode() {
    let image = Fixture::read("plain");
    let index = image.entry_index("data", "hello");
    let image = image.dirent("data", index, |entry| entry.file_type = 5);
    let nid = image.inode("data/hello").nid;
    let words = format!("the entry `hello` says fifo, but inode {nid} is a file");
    check_finds(&image, &words);
}

#[test]
fn dots_that_are_missing_or_lead_elsewhere() {
    let image = Fixture::read("plain");
    let at = image.name_offset("data", 0);
    let renamed = image.clone().put(at, b"-");
    check_finds(&renamed, "(/data): the entry `.` is missing");
    let elsewhere = image.clone().dirent("data", 0, |entry| entry.nid += 1);
    check_finds(&elsewhere, "(/data): the entry `.` leads to inode");
    let elsewhere = image.dirent("data", 1, |entry| entry.nid += 1);
    check_finds(&elsewhere, "(/data): the entry `..` leads to inode");
}

#[test]
fn sizes_that_are_not_plausible() {
    let size = 1 << 50;
    let image = Fixture::read("lz4hc-extended");
    let nid = image.inode("many").nid;
    let image = image.extended("many", |inode| inode.i_size = size.into());
    let fault = Corrupt::Size {
        size,
        kind: FileKind::Directory,
    };
    refused(image.open().unwrap().inode(nid), Place::Inode(nid), fault);
}

#[test]
fn an_entry_of_another_kind_is_told_by_an_extraction() {
    let image = Fixture::read("plain");
    let index = image.entry_index("data", "hello");
    let image = image.dirent("data", index, |entry| entry.file_type = 5);
    for keep_going in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let options = ExtractOptions {
            keep_going,
            owners: false,
            ..ExtractOptions::default()
        };
        let never = AtomicBool::new(false);
        let opened = image.open().unwrap();
        let errors = match extract(&opened, b"data", place.path(), &options, &(), &never) {
            Ok(summary) => summary.errors,
            Err(error) => vec![error],
        };
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let words = "the directory says that this is a fifo, but it is a file";
        assert!(errors.len() == 1 && errors[0].contains(words), "{errors:?}");
        assert_eq!(place.path().join("hello").exists(), keep_going);
    }
}
