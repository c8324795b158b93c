//! Lists of files that other programs make, and are given, to put the files that are read first in front.

use crate::failure::{Failure, Kind};

/// The most bytes of a list.
pub const LIST_BYTES_MAX: u64 = 256 << 20;

/// Reads paths, one a line: what DwarFS records and orders files by, and what `find` prints.
pub fn paths(text: &[u8]) -> Vec<Vec<u8>> {
    lines(text).map(|(_, line)| path(line)).collect()
}

/// Reads a sort file of squashfs or ISO 9660: a path, a blank, and a priority. What has the highest comes first; without
/// one, it is 0. A backslash stands before a blank, or a backslash, that belongs to the path.
pub fn sort_file(text: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut files = Vec::new();
    for (number, line) in lines(text) {
        let line = line.trim_ascii();
        if line.starts_with(b"#") {
            continue;
        }
        let (name, rest) = word(line);
        let priority = match rest.trim_ascii() {
            b"" => Some(0),
            rest => std::str::from_utf8(rest)
                .ok()
                .and_then(|text| text.parse::<i64>().ok()),
        };
        let Some(priority) = priority else {
            let message = format!("line {number}: a path, a blank and a priority are needed");
            return Err(Failure::new(Kind::Usage, message));
        };
        files.push((path(&name), priority));
    }
    files.sort_by_key(|&(_, priority)| std::cmp::Reverse(priority));
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

/// Reads what `ctr-remote` records, by which the files of an eStargz layer are prioritized: a JSON object with a path, one a
/// line.
pub fn estargz(text: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let entry = |(number, line): (usize, &[u8])| {
        let entry: Result<Entry, _> = serde_json::from_slice(line);
        let entry = entry.map_err(|error| {
            let message = format!("line {number}: no entry of a record of eStargz: {error}");
            Failure::new(Kind::Usage, message)
        });
        Ok(path(entry?.path.as_bytes()))
    };
    lines(text).map(entry).collect()
}

#[derive(serde::Deserialize)]
struct Entry {
    path: String,
}

/// Lines that are not empty, with their numbers.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|&byte| byte == b'\n').enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.strip_suffix(b"\r").unwrap_or(line)));
    lines.filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// The first word of a line, and what follows it.
fn word(line: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut word = Vec::new();
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        match (byte, line.get(at + 1)) {
            (b'\\', Some(&next)) => {
                word.push(next);
                at += 1;
            }
            (b' ' | b'\t', _) => break,
            _ => word.push(byte),
        }
        at += 1;
    }
    (word, &line[at..])
}

/// A path as profiles have it: with a slash in front, and none that is not needed.
fn path(text: &[u8]) -> Vec<u8> {
    let names = text.split(|&byte| byte == b'/');
    let names = names.filter(|name| !matches!(*name, b"" | b"."));
    names.fold(Vec::new(), |path, name| [&path, &b"/"[..], name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(paths: Vec<Vec<u8>>) -> Vec<String> {
        let paths = paths.into_iter();
        paths.map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn paths_begin_with_a_slash() {
        let list = paths(b"usr/bin/a\n./b c\n\n/d//e/\r\n.\n");
        assert_eq!(strings(list), ["/usr/bin/a", "/b c", "/d/e", ""]);
    }

    #[test]
    fn the_highest_priority_comes_first() {
        let list = sort_file(b"# files\na 1\nb\\ c\t-7\nd 32767\ne\n f\\\\g 1\n").unwrap();
        assert_eq!(strings(list), ["/d", "/a", "/f\\g", "/e", "/b c"]);
        for line in ["a x", "a 1 2", "a 99999999999999999999"] {
            let text = format!("ok 1\n{line}\n");
            let failure = sort_file(text.as_bytes()).unwrap_err();
            assert!(failure.message().starts_with("line 2: "), "{failure:?}");
        }
    }

    #[test]
    fn a_record_of_estargz_is_an_object_a_line() {
        let text = b"{\"path\":\"usr/bin/app\",\"manifestDigest\":\"sha256:0\",\"layerIndex\":0}\n{\"path\":\"etc/a\\n\"}\n";
        let list = estargz(text).unwrap();
        assert_eq!(strings(list), ["/usr/bin/app", "/etc/a\n"]);
        for line in ["usr/bin/app", "{}", "{\"path\":1}"] {
            assert!(estargz(line.as_bytes()).is_err(), "{line}");
        }
    }
}
