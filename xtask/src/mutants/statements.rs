//! Statements that can be left out, and the way to do that.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::outcome::Outcome;

/// The source of the crate.
pub(super) const SOURCE: &str = "crates/log/src";

/// The question that is put in front of each statement, and what stands for a value that is left out.
const QUESTION: &str = r#"
/// Tells whether the statement with this number is left out; notes that it is reached.
pub(crate) fn is_left_out(number: u32) -> bool {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    static LEFT_OUT: std::sync::LazyLock<Option<u32>> =
        std::sync::LazyLock::new(|| std::env::var("ANTEROS_MUTANT").ok()?.parse().ok());
    static REACHED: [AtomicBool; STATEMENTS] = [const { AtomicBool::new(false) }; STATEMENTS];
    static NOTES: std::sync::LazyLock<Option<std::fs::File>> = std::sync::LazyLock::new(|| {
        let path = std::env::var_os("ANTEROS_MUTANTS_REACHED")?;
        std::fs::File::options().append(true).open(path).ok()
    });
    if !REACHED[number as usize].swap(true, Ordering::Relaxed) {
        if let Some(mut notes) = NOTES.as_ref() {
            let _ = notes.write_all(format!("{number}\n").as_bytes());
        }
    }
    *LEFT_OUT == Some(number)
}

/// The value of a statement that was left out.
pub(crate) trait Nothing {
    fn nothing() -> Self;
}

impl Nothing for () {
    fn nothing() -> Self {}
}

impl<E> Nothing for Result<(), E> {
    fn nothing() -> Self {
        Ok(())
    }
}

impl Nothing for bool {
    fn nothing() -> Self {
        true
    }
}

impl Nothing for u64 {
    fn nothing() -> Self {
        0
    }
}

impl<T> Nothing for Vec<T> {
    fn nothing() -> Self {
        Self::new()
    }
}

impl<T> Nothing for Option<T> {
    fn nothing() -> Self {
        None
    }
}
"#;

/// Parts of the crate that change nothing.
const READERS: [&str; 4] = [
    "offline/check",
    "offline/walk",
    "offline/inspect.rs",
    "offline/describe.rs",
];

/// Calls that mark something as changed, as to be written or looked at, or as that no more.
const MARKS: &[&str] = &[
    "mark_dirty",
    "put_dirty_page",
    "add_dirty_pages",
    "drop_dirty_pages",
    "set_version",
    "touch",
    "touch_inode",
    "touched.insert",
    "touched.remove",
    "touched.clear",
    "dirty.set",
    "inode_mut",
    "pointers_mut",
    "page_mut",
    "block_mut",
    "written",
    "note_changed",
    "note_written",
    "note_recorded",
    "note_attributes",
    "note_failure",
    "invalidate",
    "mark",
    "claim",
    "set_valid",
    "preallocate",
    "occupy",
    "release",
    "names.clear",
    "want",
    "drop_inode",
    "add_orphan",
    "reached",
    "wanted.insert",
    "wanted.remove",
    "wanted.clear",
    "dropped.insert",
    "dropped.push",
    "dropped.clear",
    "orphans.insert",
    "orphans.remove",
    "evicting.insert",
    "evicting.remove",
    "newer.insert",
    "newer.extend",
    "freed.insert",
    "prefree.insert",
    "prefree.remove",
    "rewritten.insert",
    "rewritten.remove",
    "unreadable.insert",
    "quarantined.insert",
    "unrecorded.insert",
    "unrecorded.extend",
    "unrecorded.clear",
    "under_way.push",
    "under_way.retain",
    "begun.push",
    "begun.retain",
    "queue.lost.extend",
    "failure.get_or_insert_with",
    "has_failed.store",
    "batch.insert",
    "ahead.forget",
    "forget_block",
    "note_checkpoint",
    "supersede",
    "note_prefree",
    "set_pointer",
    "set_pointers",
    "set_nid",
    "bits.flip",
    "sit_bits.flip",
    "fail",
    "flushed",
    "left_early",
    "back_heads",
    "hand_over",
];

/// Calls that bring something to the device, or wait until it is there.
const FLUSHES: &[&str] = &[
    "flush",
    "submit",
    "writer.finish",
    "writer.relieve",
    "self.push",
    "store.push",
    "write_at",
    "checkpoint",
    "write_node",
    "write_nodes",
    "write_inode",
    "write_again",
    "write_run",
    "write_content",
    "write_pack",
    "write_sit_block",
    "rewrite_summaries",
    "write_superblock",
    "move_node",
    "put_dir_block",
    "discard_released",
    "seal",
    "seal_unmixed",
    "begin_writing",
    "wrote",
    "wrote_blocks",
];

/// Calls that wake somebody.
const WAKES: &[&str] = &[
    "notify_all",
    "notify_one",
    "wake",
    "ahead.end",
    "writer.end",
];

/// Fields that mark something when they are set.
const FIELDS: &[&str] = &[
    "content_changed",
    "xattrs_changed",
    "dirty",
    "dirty_pages",
    "durable",
    "*durable",
    "checkpointed",
    "version",
    "sequence",
    "epoch",
    "flushed",
    "early",
    "failed",
    "state",
    "is_due",
    "is_ending",
    "has_ended",
];

/// Beginnings of lines that are no expression, or the rest of one.
const OTHERS: &[&str] = &[
    "let ",
    "return",
    "use ",
    "pub ",
    "//",
    "/*",
    "}",
    ")",
    "]",
    ".",
    "&",
    "|",
    "fn ",
    "#",
    "if ",
    "match ",
    "for ",
    "while ",
    "loop",
    "const ",
    "static ",
    "type ",
    "struct ",
    "enum ",
    "impl",
    "mod ",
    "break",
    "continue",
    "macro",
    "assert",
    "debug_assert",
    "unsafe",
    "else",
    "where",
    "trait ",
];

/// A statement that can be left out.
#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub(super) number: u32,
    file: String,
    line: usize,
    text: String,
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// The way to leave out a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `call();` or `field = value;`, over so many lines.
    Statement(usize),
    /// `call()` as the value of a function, or behind the arrow of an arm.
    Value,
    /// `let name = call();`
    Let,
    /// `let _name = lock;`
    Lock,
}

/// Puts each statement of the crate behind a question, in the copy. What is there as it would be stays as old as it is.
pub(super) fn instrument(tree: &Path) -> Outcome<Vec<Statement>> {
    let source = Path::new(SOURCE);
    let mut statements = Vec::new();
    let mut changed = Vec::new();
    for path in files(source)? {
        let name = path.strip_prefix(source)?.display().to_string();
        let text = fs::read_to_string(&path)?;
        let is_reader = READERS.iter().any(|reader| name.starts_with(reader));
        let text = match is_reader || name.ends_with("tests.rs") {
            true => text,
            false => instrument_text(&name, &text, &mut statements),
        };
        changed.push((path, text));
    }
    let count = format!("\nconst STATEMENTS: usize = {};\n", statements.len());
    for (path, mut text) in changed {
        if path == source.join("lib.rs") {
            text += &(count.clone() + QUESTION);
        }
        let to = tree.join(&path);
        fs::create_dir_all(to.parent().unwrap_or(tree))?;
        if !fs::read_to_string(&to).is_ok_and(|old| old == text) {
            fs::write(&to, text)?;
        }
    }
    Ok(statements)
}

fn files(source: &Path) -> Outcome<Vec<PathBuf>> {
    let mut pending = vec![source.to_path_buf()];
    let mut files = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            match path.is_dir() {
                true => pending.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Instruments one file; tests stay as they are.
fn instrument_text(file: &str, text: &str, statements: &mut Vec<Statement>) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut changed = String::new();
    let mut at = 0;
    while at < lines.len() {
        if lines[at..].starts_with(&["#[cfg(test)]", "mod tests {"]) {
            lines[at..]
                .iter()
                .for_each(|line| changed.extend([line, "\n"]));
            break;
        }
        let Some(form) = form(&lines, at) else {
            changed.extend([lines[at], "\n"]);
            at += 1;
            continue;
        };
        let count = if let Form::Statement(count) = form {
            count
        } else {
            1
        };
        let number = statements.len() as u32;
        let parts: Vec<&str> = lines[at..at + count]
            .iter()
            .map(|line| line.trim())
            .collect();
        statements.push(Statement {
            number,
            file: file.to_owned(),
            line: at + 1,
            text: parts.concat(),
        });
        changed.push_str(&behind_question(&parts.join("\n"), form, number));
        changed.push('\n');
        at += count;
    }
    changed
}

/// Finds the way to leave out the statement that begins with a line, if it is of a kind that is left out.
fn form(lines: &[&str], at: usize) -> Option<Form> {
    let line = lines[at].trim();
    if is_bare_lock(line) {
        return Some(Form::Lock);
    }
    if let Some((_, value)) = line
        .strip_prefix("let ")
        .and_then(|rest| rest.split_once(" = "))
    {
        let value = value.strip_suffix(';')?;
        let is_flush = value.contains(".flush()") || value.contains("writer.finish(");
        return (is_flush && is_whole(value)).then_some(Form::Let);
    }
    if let Some((_, value)) = line.split_once(" => ") {
        let value = value.strip_suffix(',')?;
        return (is_sought(value) && is_begun(value)).then_some(Form::Value);
    }
    if !begins_here(lines, at) || !is_begun(line) {
        return None;
    }
    let ends_function = lines.get(at + 1).is_some_and(|next| {
        next.trim() == "}" && matches!(indent(next), 0 | 4) && indent(next) + 4 == indent(lines[at])
    });
    if ends_function && is_whole(line) {
        return is_sought(line).then_some(Form::Value);
    }
    let mut whole = String::new();
    for (index, part) in lines[at..].iter().take(12).enumerate() {
        if index > 0 && indent(part) <= indent(lines[at]) && !part.trim().starts_with([')', '}']) {
            return None;
        }
        whole.push_str(part.trim());
        if part.contains("//") || whole == part.trim() && whole.ends_with(',') {
            return None;
        }
        if let Some(statement) = whole.strip_suffix(';').filter(|whole| is_whole(whole)) {
            return is_sought(statement).then_some(Form::Statement(index + 1));
        }
        if part.ends_with(';') && !whole.contains('{') {
            return None;
        }
    }
    None
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Tells whether the line before has come to an end.
fn begins_here(lines: &[&str], at: usize) -> bool {
    let mut before = lines[..at].iter().rev().map(|line| line.trim());
    before
        .find(|line| !line.is_empty() && !line.starts_with("//"))
        .is_some_and(|line| line.ends_with(['{', '}', ';']))
}

/// Tells whether something begins as an expression does.
fn is_begun(line: &str) -> bool {
    !line.starts_with(['(', '"'])
        && !line.starts_with("Ok((")
        && !OTHERS.iter().any(|begin| line.starts_with(begin))
}

fn is_whole(statement: &str) -> bool {
    let is_balanced = |open: char, close: char| {
        statement.matches(open).count() == statement.matches(close).count()
    };
    !statement.ends_with(['{', ',', ';'])
        && is_balanced('(', ')')
        && is_balanced('{', '}')
        && is_balanced('[', ']')
}

/// Tells whether a call or an assignment is one of those that are looked for.
fn is_sought(statement: &str) -> bool {
    let field = [" = ", " += ", " -= "]
        .iter()
        .filter_map(|sign| statement.split_once(sign))
        .map(|(field, _)| field)
        .find(|field| !field.contains(['(', '{', '"']));
    if let Some(field) = field {
        return FIELDS.iter().any(|name| ends_in(field, name));
    }
    is_whole(statement)
        && [MARKS, FLUSHES, WAKES].concat().iter().any(|name| {
            let call = format!("{name}(");
            statement
                .match_indices(&call)
                .any(|(at, _)| ends_in(&statement[..at + name.len()], name))
        })
}

/// Tells whether a path of fields and methods ends in a name, and not in a longer one.
fn ends_in(path: &str, name: &str) -> bool {
    path.strip_suffix(name)
        .is_some_and(|before| before.is_empty() || before.ends_with(['.', ':', '(', ' ']))
}

/// A lock whose guard nobody uses: `let _alone = self.lock();`, or one that is given back at once.
fn is_bare_lock(line: &str) -> bool {
    let is_lock = ["lock(", "read()", "write()"]
        .iter()
        .any(|call| line.contains(call));
    line.starts_with("let _") && line.ends_with(';') && is_lock && !line.contains("else {")
}

fn behind_question(statement: &str, form: Form, number: u32) -> String {
    let question = format!("crate::is_left_out({number})");
    let value =
        |value: &str| format!("if {question} {{ crate::Nothing::nothing() }} else {{ {value} }}");
    match form {
        Form::Statement(_) => format!("if !{question} {{ {statement} }}"),
        Form::Value => match statement.split_once(" => ") {
            Some((pattern, arm)) => format!("{pattern} => {},", value(arm.trim_end_matches(','))),
            None => value(statement),
        },
        Form::Let => match statement.split_once(" = ") {
            Some((name, call)) => format!("{name} = {};", value(call.trim_end_matches(';'))),
            None => statement.to_owned(),
        },
        Form::Lock => match statement.split_once(" = ") {
            Some((guard, lock)) => {
                let lock = lock.trim_end_matches(';');
                format!("{guard} = (!{question}).then(|| {lock});")
            }
            None => statement.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_and_put_behind_a_question() {
        let text = "\
    fn change(&mut self) {
        self.touch(parent)?;
        self.retouch(parent)?;
        let seen = self.see();
        let flushed = self.flush();
        live.content_changed = true;
        live.content_changed_at = 1;
        let _alone = self.reclaiming.lock();
        self.dirty_pages -= 1;
        match &flushed {
            Ok(()) => self.flushed(epoch),
            Err(_) => self.see(),
        }
        self.statistics
            .wrote(cause);
        self.flush()
    }
#[cfg(test)]
mod tests {
    self.flush()?;
}
";
        let mut statements = Vec::new();
        let changed = instrument_text("a.rs", text, &mut statements);
        let lines: Vec<usize> = statements.iter().map(|statement| statement.line).collect();
        assert_eq!(lines, [2, 5, 6, 8, 9, 11, 14, 16]);
        for line in [
            "if !crate::is_left_out(0) { self.touch(parent)?; }\n",
            "let flushed = if crate::is_left_out(1) { crate::Nothing::nothing() } else { self.flush() };\n",
            "let _alone = (!crate::is_left_out(3)).then(|| self.reclaiming.lock());\n",
            "Ok(()) => if crate::is_left_out(5) { crate::Nothing::nothing() } else { self.flushed(epoch) },\n",
            "if !crate::is_left_out(6) { self.statistics\n.wrote(cause); }\n",
        ] {
            assert!(changed.contains(line), "{line}{changed}");
        }
        assert!(changed.ends_with("mod tests {\n    self.flush()?;\n}\n"));
    }
}
