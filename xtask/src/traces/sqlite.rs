//! Databases as applications of a phone have them: one connection, small transactions, a sync behind each.

use std::fmt::Write as _;
use std::fs;
use std::io::{Seek, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::text::Text;
use crate::bench::random::Random;
use crate::outcome::Outcome;
use crate::record::Recorder;
use crate::run;

const TRANSACTIONS: u64 = 1500;
const MAILS: u64 = 400;
const PEOPLE: u64 = 80;
/// Bytes of a picture that are one tile of a map.
const TILE_BYTES: u64 = 24_000;
/// The time of the first message.
const EPOCH: u64 = 1_700_000_000_000;

/// Has SQLite run a script in the directory of a recorder.
///
/// # Errors
/// When a statement fails.
pub(super) fn run(recorder: &Recorder, script: &str) -> Outcome {
    let mut file = tempfile::tempfile()?;
    file.write_all(script.as_bytes())?;
    file.rewind()?;
    let mut command = recorder.command(&["sqlite3", "-batch", "-bail", "main.db"]);
    run::run(command.stdin(file).stdout(Stdio::null()))
}

/// Messages with an index of their words, contacts, settings and a cache of news, as on a phone: 1,500
/// transactions, each in one of these databases.
pub(super) fn messages(text: &Text, journal: &str) -> String {
    let random = &mut Random::new(1);
    let mut script = databases(journal, &["contacts", "settings", "feed"]);
    script += "
        create table threads(id integer primary key, person int, date int, count int, snippet text, read int);
        create table sms(id integer primary key, thread int, address text, date int, read int, type int, body text);
        create index sms_by_thread on sms(thread, date);
        create virtual table words using fts4(body);
        create table contacts.people(id integer primary key, name text, times int, last int, note text);
        create table contacts.data(id integer primary key, person int, kind text, value text);
        create index contacts.data_by_person on data(person, kind);
        create table settings.system(name text primary key on conflict replace, value text);
        create table feed.items(id integer primary key, date int, source text, json text);
        create index feed.items_by_date on items(date);
    ";
    for index in 0..TRANSACTIONS {
        script += "begin;\n";
        let date = EPOCH + index * 61_000;
        match random.below(100) {
            0..50 => message(&mut script, text, random, date),
            50..62 => read(&mut script, random),
            62..74 => contact(&mut script, text, random, date),
            74..88 => setting(&mut script, random, date),
            _ => news(&mut script, text, random, date),
        }
        script += "commit;\n";
    }
    script
}

/// The beginning of a script: the main database and others beside it, all with this kind of journal.
fn databases(journal: &str, others: &[&str]) -> String {
    let mut script = format!("pragma journal_mode={journal};\n");
    for name in others {
        let lines =
            format!("attach '{name}.db' as {name};\npragma {name}.journal_mode={journal};\n");
        script += &lines;
    }
    script
}

/// As SQL has it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Adds a line. Writing to a string cannot fail.
macro_rules! line {
    ($script:expr, $($words:tt)*) => {{
        let _ = writeln!($script, $($words)*);
    }};
}

fn message(script: &mut String, text: &Text, random: &mut Random, date: u64) {
    let person = random.below(PEOPLE);
    let said = text.say(person, random);
    let body = quoted(said);
    let snippet: String = said.chars().take(40).collect();
    let kind = 1 + random.below(2);
    line!(
        script,
        "insert into sms(thread, address, date, read, type, body) values({person}, '+49 151 {:08}', {date}, 0, {kind}, {body});",
        person * 7_919_113 % 100_000_000
    );
    line!(
        script,
        "insert into words(docid, body) values(last_insert_rowid(), {body});"
    );
    line!(
        script,
        "insert into threads values({person}, {person}, {date}, 1, {snippet}, 0) on conflict(id) do update set date={date}, count=count+1, snippet=excluded.snippet, read=0;",
        snippet = quoted(&snippet)
    );
}

fn read(script: &mut String, random: &mut Random) {
    let person = random.below(PEOPLE);
    line!(
        script,
        "update sms set read=1 where thread={person} and read=0;"
    );
    line!(script, "update threads set read=1 where id={person};");
}

fn contact(script: &mut String, text: &Text, random: &mut Random, date: u64) {
    let person = random.below(PEOPLE);
    let note = quoted(text.say(person, random));
    line!(
        script,
        "insert into contacts.people values({person}, 'Person {person}', 1, {date}, {note}) on conflict(id) do update set times=times+1, last={date};"
    );
    line!(
        script,
        "insert into contacts.data(person, kind, value) values({person}, 'mail', 'person{person}.{}@mail.example');",
        random.below(1000)
    );
}

fn setting(script: &mut String, random: &mut Random, date: u64) {
    for _ in 0..=random.below(3) {
        let (name, value) = (random.below(120), random.below(1 << 20));
        line!(
            script,
            "insert into settings.system values('com.example.setting.{name}', '{date}:{value}');"
        );
    }
}

fn news(script: &mut String, text: &Text, random: &mut Random, date: u64) {
    for index in 0..5 + random.below(10) {
        let title = text.say(index, random).replace('"', "'");
        let body = text
            .tell(index, 3, random)
            .replace('"', "'")
            .replace('\n', "\\n");
        let json = quoted(&format!(
            "{{\"title\":\"{title}\",\"likes\":{},\"body\":\"{body}\"}}",
            random.below(5000)
        ));
        line!(
            script,
            "insert into feed.items(date, source, json) values({date}, 'source {index}', {json});"
        );
    }
    line!(
        script,
        "delete from feed.items where id in (select id from feed.items order by date desc limit -1 offset 150);"
    );
}

/// Returns what a map has shown: tiles, which are pictures, and when each was seen last.
///
/// # Errors
/// When a picture cannot be asked for its size.
pub(super) fn tiles(pictures: &[PathBuf]) -> Outcome<String> {
    let random = &mut Random::new(2);
    let mut script = databases("delete", &[]);
    script += "
        create table tiles(id integer primary key, zoom int, x int, y int, seen int, picture blob);
        create unique index tiles_by_place on tiles(zoom, x, y);
    ";
    let mut id = 0;
    for picture in pictures {
        let pieces = fs::metadata(picture)?.len().div_ceil(TILE_BYTES);
        let mut left = pieces;
        while left > 0 {
            let count = left.min(1 + random.below(6));
            script += "begin;\n";
            for _ in 0..count {
                let (zoom, blob) = (5 + random.below(12), piece(picture, pieces - left));
                line!(
                    script,
                    "insert into tiles values({id}, {zoom}, {id}, {}, {id}, {blob});",
                    random.below(1 << 16)
                );
                (id, left) = (id + 1, left - 1);
            }
            for _ in 0..random.below(12) {
                line!(
                    script,
                    "update tiles set seen={id} where id={};",
                    random.below(id)
                );
            }
            line!(script, "commit;");
        }
    }
    Ok(script)
}

/// A piece of a picture, as SQL has it.
fn piece(picture: &Path, index: u64) -> String {
    let path = quoted(&picture.to_string_lossy());
    format!(
        "substr(readfile({path}), {}, {TILE_BYTES})",
        1 + index * TILE_BYTES
    )
}

/// A mailbox: letters with an index of their words, and pictures sent along with a quarter of them.
///
/// # Errors
/// When a picture cannot be asked for its size.
pub(super) fn mail(text: &Text, pictures: &[PathBuf]) -> Outcome<String> {
    let random = &mut Random::new(3);
    let mut script = databases("truncate", &[]);
    script += "
        create table mails(id integer primary key, folder int, sender text, subject text, date int, flags int, body text);
        create index mails_by_folder on mails(folder, date);
        create table attachments(id integer primary key, mail int, name text, content blob);
        create virtual table words using fts5(subject, body, content='');
    ";
    for id in 0..MAILS {
        let (person, date) = (random.below(PEOPLE), EPOCH + id * 600_000);
        let paragraphs = 2 + random.below(12);
        let subject: String = text.say(person, random).chars().take(60).collect();
        let (subject, body) = (
            quoted(&subject),
            quoted(&text.tell(person, paragraphs, random)),
        );
        script += "begin;\n";
        line!(
            script,
            "insert into mails values({id}, {}, 'person{person}@mail.example', {subject}, {date}, 0, {body});",
            random.below(6)
        );
        line!(
            script,
            "insert into words(rowid, subject, body) values({id}, {subject}, {body});"
        );
        if random.below(4) == 0 {
            let picture = &pictures[random.below(pictures.len() as u64) as usize];
            let name = quoted(&picture.file_name().unwrap_or_default().to_string_lossy());
            let path = quoted(&picture.to_string_lossy());
            line!(
                script,
                "insert into attachments(mail, name, content) values({id}, {name}, readfile({path}));"
            );
        }
        script += "commit;\n";
        for _ in 0..random.below(3) {
            line!(
                script,
                "update mails set flags=flags|1 where id={};",
                random.below(id + 1)
            );
        }
    }
    Ok(script)
}
