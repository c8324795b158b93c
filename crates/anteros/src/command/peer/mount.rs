//! `mount.erofs`: the helper that mount(8) calls for images, and what erofs-utils has by that name.
//!
//! The kernel mounts the image, or with `-t erofs.fuse` a daemon serves it. Before the kernel is asked, our own reader looks
//! at the image: it can say what is wrong with it, which the kernel tells its log alone.
//!
//! - `driver`: who reads the image.
//! - `options`: the words of `-o`, each with who answers it.
//! - `kernel`: mounting a block device, or a file, by itself or through a loop device.

mod driver;
mod kernel;
mod options;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;

use super::arguments::number;
use crate::args::ImageArgs;
use crate::command::{mount, umount};
use crate::daemon::background::Told;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{output, places};
use driver::{Driver, FAILED, FUSE, INTERRUPTED, KERNEL, MOUNT, WRONG_CALL, not_supported};
use options::Options;

/// The names by which mount(8) calls its helpers: by the last two, whatever is mounted is served by our daemon.
pub const NAMES: [&str; 3] = [MOUNT, "mount.erofs.anteros", "mount.fuse.anteros"];

/// States what the program prints under this name for `-V`.
const VERSION: &str = concat!("mount.erofs (anteros) ", env!("CARGO_PKG_VERSION"), "\n");

/// Mount an image, as mount(8) asks for it
///
/// Exits as mount(8) does: 0 if it is mounted, 1 for wrong arguments or missing rights, 32 if it cannot be mounted.
#[derive(Debug, Parser)]
#[command(name = MOUNT, disable_version_flag = true, args_override_self = true, max_term_width = 100)]
struct Args {
    /// The image: a file or a block device
    #[arg(required_unless_present_any = ["version", "reattach", "disconnect"])]
    source: Option<PathBuf>,

    /// The directory to mount it on
    #[arg(required_unless_present_any = ["version", "unmount", "reattach", "disconnect"])]
    target: Option<PathBuf>,

    /// Options as mount(8) takes them, those of the kernel's EROFS, and with -t erofs.fuse those of FUSE
    #[arg(short = 'o', value_name = "OPTION,...")]
    options: Vec<String>,

    /// Type: erofs or erofs.local is mounted by the kernel, erofs.fuse by FUSE
    #[arg(short = 't', value_name = "TYPE", default_value = KERNEL)]
    kind: String,

    /// Unmount the directory that is named instead of an image
    #[arg(short = 'u', conflicts_with = "target")]
    unmount: bool,

    /// Print the version
    #[arg(short = 'V', long, exclusive = true)]
    version: bool,

    /// Level of messages; for the sake of the peer
    #[arg(short = 'd', value_name = "LEVEL", value_parser = number)]
    level: Option<u64>,

    /// Leave out options that the kernel does not know
    #[arg(short = 's')]
    sloppy: bool,

    /// Look at the image and the directory, and do not mount
    #[arg(short = 'f')]
    fake: bool,

    /// For the sake of mount(8)
    #[arg(short = 'n', short_alias = 'v', hide = true)]
    _no_table: bool,

    #[arg(short = 'N', hide = true)]
    namespace: Option<OsString>,

    #[arg(long, hide = true, num_args = 0..=1)]
    reattach: Option<Option<OsString>>,

    #[arg(long, hide = true, num_args = 0..=1)]
    disconnect: Option<Option<OsString>>,
}

/// Does what mount.erofs is asked for by a name, with the exit statuses of mount(8).
pub fn run(args: &[OsString], name: &str) -> Outcome {
    let args = match Args::try_parse_from(args) {
        // To a helper of its own, mount(8) does not name the type.
        Ok(args) if name != MOUNT && args.kind == KERNEL => Args {
            kind: FUSE.into(),
            ..args
        },
        Ok(args) => args,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            error.print()?;
            return Ok(Verdict::Bad);
        }
    };
    args.run().map_err(|failure| {
        let status = match failure.kind() {
            Kind::Usage => WRONG_CALL,
            Kind::Interrupted => INTERRUPTED,
            _ => FAILED,
        };
        failure.with_status(status)
    })
}

impl Args {
    fn run(self) -> Outcome {
        if self.version {
            output::text(VERSION)?;
            return Ok(Verdict::Good);
        }
        self.refuse_what_is_missing()?;
        let driver = Driver::of(&self.kind)?;
        let options = Options::parse(&self.options)?;
        let source = self.source.clone().unwrap_or_default();
        if self.unmount {
            return umount::Args::of(source).run();
        }
        let target = self.target.clone().unwrap_or_default();
        if options.is_remount {
            return kernel::remount(&target, &options, driver);
        }
        self.look_at(&source, &target, &options)?;
        if self.fake {
            return Ok(Verdict::Good);
        }
        places::check_free(&target, false).map_err(|failure| {
            failure
                .hint("umount(8) takes it away first")
                .with_status(FAILED)
        })?;
        match driver {
            Driver::Kernel => kernel::mount(&source, &target, &options, self.sloppy),
            Driver::Fuse => mount_by_fuse(&source, &target, &options),
        }
    }

    fn refuse_what_is_missing(&self) -> Result<(), Failure> {
        if self.namespace.is_some() {
            let hint = "`nsenter --mount=NAMESPACE mount …` mounts in another namespace";
            return Err(not_supported("option -N").hint(hint));
        }
        let missing = [
            ("--reattach", self.reattach.is_some()),
            ("--disconnect", self.disconnect.is_some()),
        ];
        match missing.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(not_supported(&format!("option {option}"))),
            None => Ok(()),
        }
    }

    /// Finds out what keeps the image from being mounted, as far as that can be told beforehand.
    fn look_at(&self, source: &Path, target: &Path, options: &Options) -> Result<(), Failure> {
        // The kernel has such an image elsewhere.
        if !options.has("fsid") {
            look_at_image(source, options)?;
        }
        match std::fs::metadata(target) {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => {
                let message = format!("{}: not a directory to mount on", target.display());
                Err(Failure::new(Kind::System, message))
            }
            Err(error) => Err(Failure::system(target, &error)),
        }
    }
}

/// Opens an image and its root. Of one that this version does not know, the kernel may know more.
fn look_at_image(source: &Path, options: &Options) -> Result<(), Failure> {
    let args = ImageArgs {
        devices: options.devices.clone(),
        offset: options.offset,
        ..ImageArgs::usual(source)
    };
    let found = args.open().and_then(|image| {
        let root = image.root();
        root.map_err(|error| Failure::image(source.display(), &error))
    });
    match found {
        Err(failure) if failure.kind() == Kind::Unsupported => Ok(()),
        // What our own commands call usage is the image's fault here: its devices are not told.
        Err(failure) if failure.kind() == Kind::Usage => Err(failure
            .hint("name each extra device, in order, with -o device=FILE")
            .with_status(FAILED)),
        found => found.map(drop),
    }
}

/// Has a daemon serve the image, as `anteros mount --fuse` does.
fn mount_by_fuse(source: &Path, target: &Path, options: &Options) -> Outcome {
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--fuse".into()];
    arguments.push(format!("--offset={}", options.offset).into());
    for device in &options.devices {
        arguments.extend(["--device".into(), device.into()]);
    }
    arguments.extend(options.for_fuse()?);
    arguments.extend(["--".into(), source.into(), target.into()]);
    let status = FAILED;
    let args = mount::Args::told(Told { arguments, status });
    args.map_err(|error| Failure::new(Kind::Usage, error))?
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_calls_its_helpers_with_options_behind_the_directory() {
        let told = [
            "mount.erofs",
            "image",
            "mnt",
            "-sfnv",
            "-o",
            "rw,nosuid",
            "-t",
            "erofs.fuse",
        ];
        let args = Args::try_parse_from(told).unwrap();
        assert!(args.sloppy && args.fake);
        assert_eq!(args.options, ["rw,nosuid"]);
        assert_eq!(Driver::of(&args.kind).unwrap(), Driver::Fuse);
        assert_eq!(args.target, Some("mnt".into()));
    }

    #[test]
    fn types_of_remote_images_are_refused_by_name() {
        for kind in ["erofs.nbd", "erofs.ublk", "erofs.fanotify", "ext4"] {
            let refused = Driver::of(kind).unwrap_err();
            let said = format!("mount.erofs: type -t {kind} is not supported");
            assert_eq!(
                (refused.kind(), refused.message()),
                (Kind::Usage, &said[..])
            );
        }
    }
}
