//! `anteros profile sort`

use std::path::PathBuf;

use super::arguments::OutputArgs;
use super::extents::by_image;
use crate::args::ImageArgs;
use crate::failure::{Failure, Outcome};
use crate::profiles;

/// Put the ranges of a profile into the order in which an image has them, in which `anteros-warm` reads them then
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    image: ImageArgs,

    /// The profile
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let mut profile = profiles::load(&self.profile)?;
        let image = self.image.open()?;
        let sorted = by_image(&image, &mut profile.ranges);
        sorted.map_err(|error| Failure::image(image.name(), &error))?;
        self.output.write(profile, None)
    }
}
