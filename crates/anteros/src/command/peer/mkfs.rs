//! `mkfs.erofs`: what it does by default, and which of its options are not there yet.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, FromArgMatches};

use super::arguments::number;
use crate::command::mkfs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

pub const MKFS: &str = "mkfs.erofs";

/// States what the program prints under the name of mkfs.erofs for `-V`. Scripts look for the second line.
const VERSION: &str = concat!(
    "mkfs.erofs (anteros) ",
    env!("CARGO_PKG_VERSION"),
    "\navailable compressors: lz4, lz4hc, lzma, deflate, libdeflate, zstd\n"
);

/// Options as scripts look for them in the help, to know what the program can do.
const AS_SCRIPTS: &str = "As mkfs.erofs writes them: -b#, -C#, -T#, -UX, -x#, -zX[,level=Y], --tar=X, --xattr-prefix=X, \
    --all-time, --mkfs-time, --max-extent-bytes=#";

/// Options that mkfs.erofs 1.9 has, and this version has not.
const NOT_SUPPORTED: [&str; 5] = [
    "--gzinfo",
    "--s3",
    "--oci",
    "--random-pclusterblks",
    "--random-algorithms",
];

/// Does what mkfs.erofs is asked for.
pub fn run(args: &[OsString]) -> Outcome {
    let command = clap::Command::new(MKFS)
        .bin_name(MKFS)
        .version(VERSION)
        .max_term_width(100)
        .args_override_self(true)
        .disable_version_flag(true)
        .after_help(AS_SCRIPTS)
        .arg(
            clap::Arg::new("version")
                .short('V')
                .long("version")
                .help("Print the version and the algorithms")
                .action(clap::ArgAction::SetTrue)
                .exclusive(true),
        );
    let command = mkfs::Args::augment_args(command.arg(clean(CLEAN)).arg(clean(INCREMENTAL)));
    let matches = match command.try_get_matches_from(translated(args)?) {
        Ok(matches) => matches,
        Err(error) => return refusal(&error).map_or_else(|| error.exit(), Err),
    };
    if matches.get_flag("version") {
        output::text(VERSION)?;
        return Ok(Verdict::Good);
    }
    let mut args = mkfs::Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    args.is_peer = true;
    // The last one of the two counts.
    let at = |name: &str| matches.index_of(name).filter(|_| matches.contains_id(name));
    args.append = at(INCREMENTAL) > at(CLEAN);
    let mode = matches.get_one(if args.append { INCREMENTAL } else { CLEAN });
    args.content = args.content.or(content(&args, mode));
    args.run()
}

const CLEAN: &str = "clean";

const INCREMENTAL: &str = "incremental";

fn clean(name: &'static str) -> clap::Arg {
    let help = match name {
        INCREMENTAL => {
            "Append the sources to the image, as --append, with content as --clean tells it"
        }
        _ => {
            "Build an image of images with all content (data, the default value), with room for it (rvsp), or with zeros (0); \
             without this option it stays in the sources. Of an archive, rvsp leaves room as well; else there is no difference"
        }
    };
    clap::Arg::new(name)
        .long(name)
        .value_name("data|rvsp|0")
        .help(help)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("data")
        .value_parser(["data", "rvsp", "0"])
}

/// Returns what becomes of the content of files by `--clean`.
fn content(args: &mkfs::Args, clean: Option<&String>) -> Option<mkfs::Content> {
    use mkfs::Content;
    let clean = clean.map(String::as_str);
    match (args.takes_images(), clean) {
        (true, None) => Some(Content::Refer),
        (true, Some("0")) => Some(Content::Zero),
        (true, Some("rvsp")) => Some(Content::Reserve),
        (false, Some("rvsp")) if args.takes_archives() => Some(Content::Reserve),
        _ => None,
    }
}

/// Options of `-E`, by their bits in `--zfeature-bits`.
const FEATURES: [&str; 8] = [
    "legacy-compress",
    "ztailpacking",
    "fragments",
    "all-fragments",
    "dedupe",
    "fragdedupe",
    "48bit",
    "dot-omitted",
];

const BITS: &str = "--zfeature-bits";
const LIMIT: &str = "--async-queue-limit";

/// Decompression of archives, whose magic tells enough.
const DECOMPRESSION: [&str; 4] = ["--ungzip", "--gzip", "--unxz", "--unlzma"];
const SORT: &str = "--sort";

/// The arguments with `--zfeature-bits` as `-E…`, and without those that change nothing here: `--async-queue-limit`, for
/// `--memory` bounds what waits; `--ungzip` and its like, for archives tell how they are compressed. `--sort` becomes
/// `--order`.
fn translated(args: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut translated = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let text = arg.to_str().unwrap_or_default();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let mut required = || value.or_else(|| args.next()?.to_str()).unwrap_or_default();
        match name {
            BITS => translated.extend(features(told_number(name, required())?)?),
            LIMIT => _ = told_number(name, required())?,
            SORT => translated.extend(order(required())?),
            _ if DECOMPRESSION.contains(&name) => match value {
                None => {}
                Some(_) => return Err(not_supported(&format!("{name}=FILE"))),
            },
            _ => translated.push(arg.clone()),
        }
    }
    Ok(translated)
}

fn told_number(name: &str, value: &str) -> Result<u64, Failure> {
    number(value).map_err(|why| {
        let message = format!("{MKFS}: {name}={value}: {why}");
        Failure::new(Kind::Usage, message)
    })
}

/// The option `--order` for `--sort`.
fn order(value: &str) -> Result<Option<OsString>, Failure> {
    match value {
        "path" => Ok(Some("--order=path".into())),
        "none" => Ok(Some("--order=stream".into())),
        _ => {
            let message = format!("{MKFS}: {SORT}={value}: path and none are known");
            Err(Failure::new(Kind::Usage, message))
        }
    }
}

fn not_supported(option: &str) -> Failure {
    let message = format!("{MKFS}: option {option} is not supported yet");
    Failure::new(Kind::Usage, message)
}

/// The option `-E` with the features of some bits, if there are any.
fn features(bits: u64) -> Result<Option<OsString>, Failure> {
    if bits >> FEATURES.len() != 0 {
        let message = format!("{MKFS}: {BITS}={bits}: 255 is the most");
        return Err(Failure::new(Kind::Usage, message));
    }
    let set = FEATURES.iter().enumerate();
    let set = set.filter(|(bit, _)| bits >> bit & 1 == 1);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    Ok((!names.is_empty()).then(|| format!("-E{}", names.join(",")).into()))
}

/// The words for an option that is not there; `None` if it is another kind of mistake.
fn refusal(error: &clap::Error) -> Option<Failure> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let name = argument.split('=').next().unwrap_or(argument);
    if NOT_SUPPORTED.contains(&name) {
        return Some(not_supported(name));
    }
    let message = format!("{MKFS}: there is no option {argument}");
    Some(Failure::new(Kind::Usage, message).hint("--help lists all options"))
}
