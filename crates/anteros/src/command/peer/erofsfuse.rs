//! `erofsfuse`: mounts an image through FUSE.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::CommandFactory;

use super::arguments::{number, parsed, with_status_1};
use crate::command::mount;
use crate::daemon::background::Told;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::options::CommonOption;
use crate::output;

pub const EROFSFUSE: &str = "erofsfuse";

/// States what the program prints under this name for `-V`.
const VERSION: &str = concat!("erofsfuse (anteros) ", env!("CARGO_PKG_VERSION"), "\n");

/// Mount an image through FUSE
///
/// Exits with 0 when the mount stands, else with 1.
#[derive(Debug, clap::Parser)]
#[command(name = EROFSFUSE, disable_version_flag = true, args_override_self = true, max_term_width = 100)]
struct Args {
    /// The image: a file or a block device
    #[arg(required_unless_present = "version")]
    image: Option<PathBuf>,

    /// The directory to mount it on
    #[arg(required_unless_present = "version")]
    directory: Option<PathBuf>,

    /// Print the version
    #[arg(short = 'V', long, exclusive = true)]
    version: bool,

    /// Stay in the foreground
    #[arg(short = 'f')]
    foreground: bool,

    /// As -f; nothing more is said
    #[arg(short = 'd')]
    debug: bool,

    /// Answer one request after the other
    #[arg(short = 's')]
    single: bool,

    /// Options as mount(8) takes them, max_threads=COUNT, and for erofsfuse's sake what libfuse knows besides
    #[arg(short = 'o', value_name = "OPTION,...", value_delimiter = ',')]
    options: Vec<String>,

    /// Level of messages; for erofsfuse's sake
    #[arg(long, value_name = "LEVEL", value_parser = number)]
    dbglevel: Option<u64>,

    /// An extra device of a multi-device image; repeat it for each, in order
    #[arg(long = "device", value_name = "FILE")]
    devices: Vec<PathBuf>,

    /// Byte of the file at which the image begins
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = number)]
    offset: u64,
}

/// Options of libfuse that change nothing here: how the mount is called, and what is so in any case.
pub(super) const IGNORED: [&str; 11] = [
    "rw",
    "fsname",
    "subtype",
    "nonempty",
    "auto_unmount",
    "clone_fd",
    "max_idle_threads",
    "kernel_cache",
    "auto_cache",
    "max_read",
    "user",
];

/// Does what erofsfuse is asked for. Whatever is wrong gives the exit status 1.
pub fn run(args: &[OsString]) -> Outcome {
    with_status_1(Args::command(), args, |matches| {
        parsed::<Args>(matches).run()
    })
}

impl Args {
    fn run(self) -> Outcome {
        if self.version {
            output::text(VERSION)?;
            return Ok(Verdict::Good);
        }
        let told = Told {
            arguments: self.arguments()?,
            status: 1,
        };
        let args = mount::Args::told(told);
        args.map_err(|error| Failure::new(Kind::Usage, error))?
            .run()
    }

    /// The arguments of `anteros mount` that do the same.
    fn arguments(self) -> Result<Vec<OsString>, Failure> {
        let offset = format!("--offset={}", self.offset);
        let mut arguments: Vec<OsString> =
            ["mount", "--fuse", "--any-root"].map(OsString::from).into();
        arguments.push(offset.into());
        let mut stays = self.foreground || self.debug;
        let mut workers = self.single.then(|| "1".to_owned());
        for device in self.devices {
            arguments.extend(["--device".into(), device.into()]);
        }
        for option in self.options.iter().filter(|option| !option.is_empty()) {
            let name = option.split('=').next().unwrap_or(option);
            match option.strip_prefix("max_threads=") {
                Some(count) => workers = workers.or_else(|| Some(count.to_owned())),
                None if option == "debug" => stays = true,
                None if IGNORED.contains(&name) || name.starts_with("x-") => {}
                None if CommonOption::named(option).is_some() => {
                    arguments.extend(["-o".into(), option.into()]);
                }
                None => {
                    let message = format!("{EROFSFUSE}: option -o {option} is not supported");
                    return Err(Failure::new(Kind::Usage, message));
                }
            }
        }
        arguments.extend(stays.then(|| "--foreground".into()));
        arguments.extend(workers.map(|count| format!("--workers={count}").into()));
        arguments.push("--".into());
        arguments.extend(
            [self.image, self.directory]
                .into_iter()
                .flatten()
                .map(OsString::from),
        );
        Ok(arguments)
    }
}
