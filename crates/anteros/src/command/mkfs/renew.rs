//! `anteros mkfs --base`: an image in which what an older one has as well lies where it does there.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anteros_build::{
    Appended, Error, Fragments, Input, Layer, Observer, Options, Order, Renew, Summary, build,
};
use anteros_image::{CheckOptions, Image, ImageFs};

use super::append::{appended, base_of, check_metadata, taken};
use super::arguments::Args;
use super::failure::{Before, failure};
use super::form;
use crate::args::ImageArgs;
use crate::failure::{Failure, Kind};
use crate::{interrupt, output};

impl Args {
    /// Builds an image over an older one. Where that cannot be, or too much of it would be empty, it is built as if there were
    /// none, and that is told.
    pub(super) fn build_over(
        &self,
        (older, is_stream): (&Path, bool),
        observer: &dyn Observer,
        cancel: &AtomicBool,
    ) -> Result<Summary, Failure> {
        if is_stream {
            return Err(Failure::new(Kind::Usage, "with --base the image is a file"));
        }
        self.check_over()?;
        let image = ImageArgs::alone(older).open()?;
        let options = self.options_in_form_of(&image)?;
        let append = appended(&image)?;
        let renew = renew(&image, &options, cancel)?;
        let end = image.recorded_bytes();
        let over = Options {
            append: Some(Appended { end, ..append }),
            renew: Some(renew),
            fragments: None,
            dedupe: false,
            order: Order::Path,
            ..options.clone()
        };
        let before = Before::of(&self.image, &over);
        let fail = |e| failure(&self.image, before, &e);
        let fs = Arc::new(ImageFs::new(image));
        let former = Layer::Base(fs.clone(), base_of(fs), older.to_owned());
        let input = Input::Replaced {
            former,
            source: self.only_source(cancel)?,
        };
        match build(&self.image, input, &over, observer, cancel) {
            Err(Error::NotRenewed(why)) => {
                let text = format!("{}: {why}; the image is built anew", older.display());
                output::complain("warning", text);
                let input = Input::One(self.only_source(cancel)?);
                build(&self.image, input, &options, observer, cancel).map_err(fail)
            }
            built => built.map_err(fail),
        }
    }

    /// The options that are told, in the form of the older image.
    fn options_in_form_of(&self, image: &Image) -> Result<Options, Failure> {
        refuse(image)?;
        let told = self.options(None)?;
        let compressor = self.compressor.as_ref().map(|all| all.all()[0]);
        let sb = image.superblock();
        let packs = sb.packed.is_some();
        Ok(Options {
            label: match self.label.is_empty() {
                true => sb.label().to_vec(),
                false => told.label.clone(),
            },
            fragments: packs.then_some(Fragments {
                all: false,
                pcluster_bytes: None,
            }),
            dedupe: packs,
            order: match packs {
                true => Order::Group,
                false => Order::Path,
            },
            ..form::of_image(image, compressor, self.cluster, told)?
        })
    }

    /// Refuses what says that the image is to have another form.
    fn check_over(&self) -> Result<(), Failure> {
        let told = [
            (self.small || self.balanced || self.fast, "a preset"),
            (self.target.is_some(), "--for"),
            (!self.extended.is_empty(), "-E"),
            (self.metadata.is_some(), "--metadata"),
            (
                self.compress_directories.is_some(),
                "--compress-directories",
            ),
            (self.block_bits.is_some(), "--block-size"),
            (self.compress_hints.is_some(), "--compress-hints"),
            (self.profile.is_some(), "--profile"),
            (
                self.order.is_some() || self.order_list.is_some(),
                "an order",
            ),
            (self.chunksize.is_some() || self.blobdev.is_some(), "chunks"),
            (self.tar.is_some(), "--tar"),
            (self.quick.is_some(), "--quick"),
        ];
        match told.iter().find(|(is_told, _)| *is_told) {
            None => Ok(()),
            Some((_, what)) => {
                let message = format!(
                    "{what} cannot be with --base: the image has the form of the older one"
                );
                let hint = "only -z and -C tell how new content is compressed";
                Err(Failure::new(Kind::Usage, message).hint(hint))
            }
        }
    }

    /// The source, of which there must be one that can be read twice.
    fn only_source(&self, cancel: &AtomicBool) -> Result<Layer<'_>, Failure> {
        match self.input(None, cancel)? {
            Input::One(layer) if self.sources.iter().all(|source| source.as_os_str() != "-") => {
                Ok(layer)
            }
            _ => {
                let message = "with --base there is one source, which is not standard input";
                Err(Failure::new(Kind::Usage, message))
            }
        }
    }
}

/// Refuses forms of an older image in which nothing can stay, by name.
fn refuse(image: &Image) -> Result<(), Failure> {
    let Some(what) = form::unfit(image) else {
        return Ok(());
    };
    let name = image.name();
    let message = format!("{name}: an image with {what} is no base");
    let hint = "without --base, the image is built anew";
    Err(Failure::new(Kind::Unsupported, message).hint(hint))
}

/// Checks an image, and looks for what nothing refers to in it.
fn renew(image: &Image, options: &Options, cancel: &AtomicBool) -> Result<Renew, Failure> {
    let check = CheckOptions {
        data: false,
        workers: options.workers,
        gaps_in: std::iter::once(0..image.recorded_bytes()).collect(),
        ..CheckOptions::default()
    };
    let report = check_metadata(image, &check, "nothing stays of", cancel)?;
    interrupt::check(cancel)?;
    let packed = image.superblock().packed.map(|nid| {
        let inode = image.inode(nid)?;
        Ok((inode.size, taken(image, &inode)?.image))
    });
    let packed = packed.transpose();
    let packed = packed.map_err(|e: anteros_image::Error| Failure::image(image.name(), &e))?;
    let (packed_bytes, packed) = packed.unwrap_or_default();
    Ok(Renew {
        gaps: report.gaps,
        packed_bytes,
        packed,
    })
}
