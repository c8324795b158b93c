//! Part `presets`: reading what `--small`, `--balanced` and `--fast` make, beside squashfs with XZ and a daemon of zeros,
//! which is as fast as FUSE can be.

use std::mem;

use super::contender::{Contender, How};
use super::format::Format;
use super::harness::Bench;
use super::patterns::read_a_tree;
use crate::outcome::Outcome;

/// The presets of `anteros mkfs`.
const PRESETS: [&str; 3] = ["--small", "--balanced", "--fast"];

/// Runs the part. The images are for this once: what the builder makes of a preset changes.
///
/// # Errors
/// When a corpus cannot be had or read, or a peer is missing.
pub(super) fn presets(bench: &mut Bench) -> Outcome {
    let images = bench.scratch.join("presets");
    std::fs::create_dir_all(&images)?;
    let kept = mem::replace(&mut bench.images, images);
    let outcome = of_all(bench);
    bench.images = kept;
    outcome
}

fn of_all(bench: &mut Bench) -> Outcome {
    for name in bench.options.corpora_or(&["minbase"]) {
        let corpus = super::super::corpus(&name)?;
        for preset in PRESETS {
            let format = Format::Preset(bench.anteros.clone(), preset);
            let mut contenders = bench.erofs(&format)?;
            contenders.push(Contender::zeros(format)?);
            let squashfs = Contender::kernel("kernel squashfs xz", Format::SquashfsXz, How::Loop);
            contenders.push(squashfs);
            let subject = format!("{name} {preset}");
            read_a_tree(bench, "presets", &subject, &corpus, contenders)?;
        }
    }
    Ok(())
}
