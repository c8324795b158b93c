//! Cold reads by the kernel of the image before a patch, behind it, and of one that is built anew.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::mount::MountFlags;

use super::case::Case;
use crate::bench::caches::drop_caches;
use crate::bench::contest::{Contender, Contest};
use crate::bench::device::LoopDevice;
use crate::bench::mounted::mount;
use crate::bench::report::{Comparison, Unit, Yardstick};
use crate::outcome::Outcome;
use crate::run::run;

const REBUILT: &str = "rebuilt";

const BY_REBUILT: &[Yardstick] = &[Yardstick {
    label: "of rebuilt",
    side: REBUILT,
}];

/// Everything that is read: names and properties, or content as well.
const ALL: [(&str, &str); 2] = [
    ("all names and properties", "find . -printf '%s %t %p\\n'"),
    ("all content", "find . -type f -exec cat {} +"),
];

/// An image that is read.
struct Image<'a>(&'static str, &'a Path);

impl Contender for Image<'_> {
    fn name(&self) -> &str {
        self.0
    }

    fn command(&self) -> String {
        String::new()
    }
}

impl Case<'_> {
    /// Lets all images take turns.
    pub(super) fn reads(&self) -> Vec<Comparison> {
        let images = [
            Image("before the patch", &self.old),
            Image("patched", &self.patched),
            Image(REBUILT, &self.rebuilt),
        ];
        let comparisons = ALL.iter().flat_map(|(what, script)| {
            let metric = |unit: &str| format!("cold reads: {what}, {unit}");
            let metrics = [
                (metric("bytes"), Unit::Bytes),
                (metric("requests"), Unit::Count),
                (metric("time"), Unit::Seconds),
            ];
            let contest = Contest {
                metrics: &metrics,
                subject: &self.subject,
                at: None,
                yardsticks: BY_REBUILT,
                runs: self.bench.runs(),
            };
            contest.hold(&images, |Image(_, image)| self.read(image, script))
        });
        comparisons.collect()
    }

    /// Bytes and requests that reach the device of an image, and time, while a script reads it.
    fn read(&self, image: &Path, script: &str) -> Outcome<Vec<f64>> {
        let device = LoopDevice::attach(image, false, false)?;
        let directory = self.bench.path("mount");
        std::fs::create_dir_all(&directory)?;
        let _mounted = mount(device.node(), &directory, "erofs", MountFlags::RDONLY, None)?;
        drop_caches()?;
        let (before, start) = (device.traffic()?, Instant::now());
        let mut shell = Command::new("sh");
        run(shell
            .args(["-ec", script])
            .current_dir(&directory)
            .stdout(Stdio::null()))?;
        let (after, seconds) = (device.traffic()?, start.elapsed().as_secs_f64());
        Ok(vec![
            (after.bytes_read - before.bytes_read) as f64,
            (after.reads - before.reads) as f64,
            seconds,
        ])
    }
}
