//! `file_contexts`: the labels that a policy of SELinux gives to files.
//!
//! A line has a regular expression for the whole of a path, a kind of file or none, and a label:
//!
//! ```text
//! # the system
//! /usr(/.*)?                 system_u:object_r:usr_t:s0
//! /usr/bin/.*          --    system_u:object_r:bin_t:s0
//! /usr/share/empty     -d    <<none>>
//! ```
//!
//! The last line that fits counts, but for those without special characters, which come before all others. `<<none>>` is no
//! label. The kinds are `--` (regular files), `-d`, `-l`, `-c`, `-b`, `-p` and `-s`.

use std::collections::HashMap;
use std::sync::OnceLock;

use anteros_core::FileKind;
use regex::bytes::{Regex, RegexBuilder};

/// The first bytes of the compiled form.
const COMPILED: [u8; 4] = [0x8a, 0xff, 0x7c, 0xf9];

/// Longest expression that is taken, in bytes of what it is compiled to.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

/// Labels by path and kind.
#[derive(Debug, Default)]
pub struct FileContexts {
    /// Labels of single paths.
    literals: HashMap<Box<[u8]>, Vec<Label>>,
    /// Labels of expressions, in the order of their lines.
    patterns: Vec<Pattern>,
}

/// A label, for files of a kind or of any.
#[derive(Debug)]
struct Label {
    kind: Option<FileKind>,
    /// `None` if the file has none.
    label: Option<Box<[u8]>>,
}

#[derive(Debug)]
struct Pattern {
    /// The beginning of all paths that it fits.
    prefix: Box<[u8]>,
    expression: Box<str>,
    /// Compiled when it is needed: policies have thousands.
    regex: OnceLock<Regex>,
    label: Label,
}

impl FileContexts {
    /// Reads a policy's text, behind those that were read before.
    ///
    /// # Errors
    ///
    /// Text that tells the line that is wrong, and why.
    pub fn read(&mut self, text: &[u8]) -> Result<(), String> {
        if text.starts_with(&COMPILED) {
            return Err("it is a compiled policy; its text is needed".into());
        }
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            self.line(line.trim_ascii())
                .map_err(|e| format!("line {}: {e}", number + 1))?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(());
        }
        let line = std::str::from_utf8(line).map_err(|_| "it is no UTF-8")?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (expression, kind, label) = match words[..] {
            [expression, label] => (expression, None, label),
            [expression, kind, label] => (expression, Some(kind_of(kind)?), label),
            [_] => return Err("no label behind the expression".into()),
            _ => return Err("more than an expression, a kind of file and a label".into()),
        };
        if label.len() >= usize::from(u16::MAX) {
            return Err(format!("a label of {} bytes", label.len()));
        }
        let is_label = label != "<<none>>";
        let label = Label {
            kind,
            label: is_label.then(|| [label.as_bytes(), b"\0"].concat().into()),
        };
        match literal(expression) {
            Some(path) => self.literals.entry(path).or_default().push(label),
            None => self.patterns.push(Pattern::new(expression, label)?),
        }
        Ok(())
    }

    /// Returns what the line says that counts for the file at an absolute path: a label, with a zero byte behind it as the
    /// kernel keeps it, or that there is none. `None` if no line fits.
    pub(super) fn label(&self, path: &[u8], kind: FileKind) -> Option<Option<&[u8]>> {
        let fits = |label: &&Label| label.kind.is_none_or(|of| of == kind);
        let single = self.literals.get(path).into_iter().flatten().rev();
        let patterns = self.patterns.iter().rev();
        let patterns = patterns.filter(|pattern| fits(&&pattern.label) && pattern.fits(path));
        let patterns = patterns.map(|pattern| &pattern.label);
        let label = single.filter(fits).chain(patterns).next();
        label.map(|label| label.label.as_deref())
    }
}

impl Pattern {
    fn new(expression: &str, label: Label) -> Result<Self, String> {
        compiled(expression).map_err(|e| format!("the expression `{expression}`: {e}"))?;
        Ok(Self {
            prefix: prefix(expression),
            expression: expression.into(),
            regex: OnceLock::new(),
            label,
        })
    }

    fn fits(&self, path: &[u8]) -> bool {
        path.starts_with(&self.prefix) && self.regex().is_match(path)
    }

    fn regex(&self) -> &Regex {
        let compile = || compiled(&self.expression).expect("it was compiled before");
        self.regex.get_or_init(compile)
    }
}

/// The regular expression for whole paths.
fn compiled(expression: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("^{expression}$"))
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(EXPRESSION_BYTES_MAX)
        .build()
}

fn kind_of(word: &str) -> Result<FileKind, String> {
    Ok(match word {
        "--" => FileKind::Regular,
        "-d" => FileKind::Directory,
        "-l" => FileKind::Symlink,
        "-c" => FileKind::CharDevice,
        "-b" => FileKind::BlockDevice,
        "-p" => FileKind::Fifo,
        "-s" => FileKind::Socket,
        _ => {
            return Err(format!(
                "`{word}` is no kind of file; --, -d, -l, -c, -b, -p and -s are"
            ));
        }
    })
}

/// Returns whether a byte is special in an expression.
fn is_special(byte: u8) -> bool {
    b".^$?*+|[(){}]".contains(&byte)
}

/// The path that an expression without special characters stands for. A character behind a backslash is not special, and `\x20`
/// is the byte of that number.
fn literal(expression: &str) -> Option<Box<[u8]>> {
    let mut path = Vec::new();
    let mut bytes = expression.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => path.push(match bytes.next()? {
                b'x' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    (digit()? << 4 | digit()?) as u8
                }
                byte if byte.is_ascii_alphanumeric() => return None,
                byte => byte,
            }),
            byte if is_special(byte) => return None,
            byte => path.push(byte),
        }
    }
    Some(path.into())
}

/// The bytes with which all paths begin that an expression fits.
fn prefix(expression: &str) -> Box<[u8]> {
    if expression.contains('|') && is_alternative(expression) {
        return Box::default();
    }
    let end = expression.bytes().position(|b| is_special(b) || b == b'\\');
    let end = end.unwrap_or(expression.len());
    let is_repeated = matches!(
        expression.as_bytes().get(end),
        Some(b'?' | b'*' | b'+' | b'{')
    );
    // What is repeated may be missing.
    let end = end - usize::from(is_repeated && end > 0);
    expression.as_bytes()[..end].into()
}

/// Returns whether there may be a `|` outside of all parentheses. Brackets may have anything in them.
fn is_alternative(expression: &str) -> bool {
    let mut depth = 0;
    let mut bytes = expression.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'[' => return true,
            b'|' if depth <= 0 => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(text: &str) -> FileContexts {
        let mut contexts = FileContexts::default();
        contexts.read(text.as_bytes()).unwrap();
        contexts
    }

    fn label(contexts: &FileContexts, path: &str, kind: FileKind) -> String {
        let Some(label) = contexts.label(path.as_bytes(), kind) else {
            return "-".into();
        };
        label.map_or("none".into(), |label| {
            let text = std::str::from_utf8(label).unwrap();
            text.strip_suffix('\0').unwrap().into()
        })
    }

    #[test]
    fn the_last_line_that_fits_counts_and_single_paths_before_all() {
        let list = contexts(
            "# a comment\n\n/usr/bin/sh\tshell\n/.*\t\troot\n/usr(/.*)?  usr\n/usr/bin/.* -- bin\n\
             /usr/lib/x\\.y dot\n/usr/empty -d <<none>>\n/usr/ca?t c\n/(a|b)/.* either\n/c|/d ends\n",
        );
        for (path, kind, expected) in [
            ("/", FileKind::Directory, "root"),
            ("/usr", FileKind::Directory, "usr"),
            ("/usr/bin/sh", FileKind::Regular, "shell"),
            ("/usr/bin/ls", FileKind::Regular, "bin"),
            ("/usr/bin/ls", FileKind::Symlink, "usr"),
            ("/usr/lib/x.y", FileKind::Regular, "dot"),
            ("/usr/lib/xzy", FileKind::Regular, "usr"),
            ("/usr/empty", FileKind::Directory, "none"),
            ("/usr/empty", FileKind::Regular, "usr"),
            ("/usr/ct", FileKind::Fifo, "c"),
            ("/b/1\n2", FileKind::Socket, "either"),
            ("/c/more", FileKind::Regular, "ends"),
            ("/usr/d", FileKind::Regular, "ends"),
        ] {
            assert_eq!(label(&list, path, kind), expected, "{path}");
        }
        assert_eq!(label(&contexts("/a a"), "/b", FileKind::Regular), "-");
    }

    #[test]
    fn a_number_stands_for_its_byte() {
        let list = contexts("/a\\x20b\\xff blank\n/.* rest\n");
        assert_eq!(list.patterns.len(), 1);
        let told = list.label(b"/a b\xff", FileKind::Regular);
        assert_eq!(told.flatten(), Some(&b"blank\0"[..]));
    }

    #[test]
    fn a_prefix_is_that_of_all_paths() {
        for (expression, expected) in [
            ("/usr/bin/.*", "/usr/bin/"),
            ("/usr(/.*)?", "/usr"),
            ("/usr/ca?t", "/usr/c"),
            ("/usr/x\\.y.*", "/usr/x"),
            ("/a(b|c)", "/a"),
            ("/a|/b", ""),
            ("/a[|]b*", ""),
            ("/a[(]|/b", ""),
            (".*", ""),
            ("*", ""),
        ] {
            assert_eq!(&*prefix(expression), expected.as_bytes(), "{expression}");
        }
    }

    #[test]
    fn whatever_is_no_line_is_refused_with_its_number() {
        for (bad, why) in [
            ("/a", "no label"),
            ("/a -x b", "`-x` is no kind of file"),
            ("/a -- b c", "more than"),
            ("/(a b", "the expression `/(a`"),
            ("/(?=a)b.* c", "look-around"),
            ("/(a{1000}){1000} c", "size limit"),
        ] {
            let text = format!("/x y\n{bad}\n");
            let error = FileContexts::default().read(text.as_bytes()).unwrap_err();
            assert!(error.starts_with("line 2: "), "{bad}: {error}");
            assert!(error.contains(why), "{bad}: {error}");
        }
        let mut list = FileContexts::default();
        let error = list.read(b"\x8a\xff\x7c\xf9more").unwrap_err();
        assert!(error.contains("compiled"), "{error}");
        assert!(list.read(b"\xff\xfe x").unwrap_err().contains("UTF-8"));
    }
}
