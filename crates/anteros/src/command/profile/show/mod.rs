//! `anteros profile show`
//!
//! `survey` finds out what a profile reads of an image, `page` draws it.

mod page;
mod shown;
mod survey;

use std::path::{Path, PathBuf};

use anteros_trace::profile::{Profile, Range, merge};
use serde_json::{Value, json};

use super::fit::Fit;
use super::tree::{Tree, is_log};
use crate::args::{ImageArgs, ReportArgs};
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::{drawing, output, profiles};
use shown::Shown;
use survey::Survey;

/// Tells what to do with a profile without ranges.
const EMPTY_HINT: &str = "`anteros profile record` makes a profile of what a command reads";
/// Tells what there is for logs.
const LOG_HINT: &str = "`anteros log launches` tells what programs read of a log, `anteros log dump --path FILE` where a file lies";

/// Tell what the ranges of a profile cost in an image: blocks, extents, requests, and what is decompressed in vain
///
/// Of several images, such as one from before and one from after a change of its order, the numbers stand side by side.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The images
    #[arg(required = true)]
    images: Vec<PathBuf>,

    /// The profile
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,

    /// Count only what all rounds have read
    #[arg(long)]
    core: bool,

    /// Also draw a map of each image into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    report: ReportArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let profile = profiles::load(&self.profile)?;
        // No byte is read twice.
        let profile = merge(std::slice::from_ref(&profile));
        if !profile
            .ranges
            .iter()
            .any(|range| self.wants(&profile, range))
        {
            let text = format!("{} is empty: there is nothing to show", self.title());
            return Err(Failure::new(Kind::Usage, text).hint(EMPTY_HINT));
        }
        let mut verdict = Verdict::Good;
        let mut all = Vec::new();
        for path in &self.images {
            let (shown, found) = self.survey(path, &profile)?;
            if found != Verdict::Good {
                verdict = found;
            }
            all.push(shown);
        }
        if let Some(path) = &self.html {
            drawing::write_page(path, &page::page(&all, &self.title()))?;
        }
        match self.report.json {
            true => output::json(&self.as_json(&all))?,
            false => output::text(&self.as_text(&profile, &all))?,
        }
        Ok(verdict)
    }

    /// Returns whether a range counts.
    fn wants(&self, profile: &Profile, range: &Range) -> bool {
        !self.core || profile.is_core(range)
    }

    fn survey(&self, path: &Path, profile: &Profile) -> Result<(Shown, Verdict), Failure> {
        if is_log(path)? {
            let message = format!("{}: a log, and this tells of images", path.display());
            return Err(Failure::new(Kind::Usage, message).hint(LOG_HINT));
        }
        let image = ImageArgs::alone(path).open()?;
        let tree = Tree::of_image(image.clone());
        let mut fit = Fit::new(&tree);
        let ranges = profile.ranges.iter();
        let ranges = ranges.filter(|range| self.wants(profile, range)).cloned();
        let ranges: Vec<Range> = ranges.filter_map(|range| fit.verified(range)).collect();
        let failure = |error| Failure::image(path.display(), &error);
        let survey = Survey::of(&image, &ranges).map_err(failure)?;
        let verdict = fit.tell();
        let shown = Shown {
            name: output::name(path.as_os_str().as_encoded_bytes()),
            survey,
            missing: fit.misfits(),
            changed: fit.changed(),
        };
        Ok((shown, verdict))
    }

    fn title(&self) -> String {
        let name = output::name(self.profile.as_os_str().as_encoded_bytes());
        let what = if self.core { "core set" } else { "profile" };
        format!("{what} of {name}")
    }

    fn as_json(&self, all: &[Shown]) -> Value {
        let images = all.iter().map(|shown| {
            let survey = &shown.survey;
            json!({
                "image": shown.name,
                "ranges": survey.ranges,
                "missing_ranges": shown.missing,
                "changed_ranges": shown.changed,
                "bytes": survey.bytes,
                "pages": survey.pages,
                "extents": survey.extents,
                "device_bytes": survey.device_bytes,
                "requests": survey.requests,
                "runs": survey.runs,
                "decoded_bytes": survey.decoded_bytes,
                "dar": survey.dar(),
            })
        });
        json!({
            "profile": self.profile.to_string_lossy(),
            "only_core": self.core,
            "images": images.collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, profile: &Profile, all: &[Shown]) -> String {
        let mut lines = vec![format!(
            "{}, {} rounds",
            self.title(),
            output::count(profile.rounds)
        )];
        let mut row = |name: &str, cell: &dyn Fn(&Shown) -> String| {
            let cells: String = all
                .iter()
                .map(|shown| format!(" {:>20}", cell(shown)))
                .collect();
            lines.push(format!("{name:<24}{cells}"));
        };
        row("", &|shown| shown.name.clone());
        for (name, cell) in page::ROWS {
            row(name, &cell);
        }
        lines.join("\n") + "\n"
    }
}
