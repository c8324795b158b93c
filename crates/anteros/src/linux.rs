//! Words for what an image asks of the Linux that mounts it.

use anteros_format::linux::Needs;
use anteros_image::Image;
use serde::Serialize;

use crate::output;

/// The demands of an image on Linux, as scripts see them.
#[derive(Debug, Serialize)]
pub struct View {
    /// The oldest version that mounts it.
    oldest: String,
    /// The features because of which no older one does.
    because: Vec<&'static str>,
    /// The options that this kernel is built with.
    options: Vec<&'static str>,
    /// The smallest pages of memory that will do.
    page_bytes: u32,
    /// An estimate of what its decoders take, for each CPU.
    decoder_bytes_per_cpu: u64,
}

impl View {
    pub fn new(needs: &Needs) -> Self {
        Self {
            oldest: needs.oldest().to_string(),
            because: needs.reasons().map(|feature| feature.name()).collect(),
            options: needs.options(),
            page_bytes: needs.page_bytes,
            decoder_bytes_per_cpu: needs.decoder_bytes,
        }
    }

    /// The oldest version, and what it is for: `5.17 (ztailpacking)`.
    pub fn version(&self) -> String {
        match self.because.is_empty() {
            true => self.oldest.clone(),
            false => format!("{} ({})", self.oldest, self.because.join(", ")),
        }
    }

    /// The memory of its decoders.
    pub fn memory(&self) -> String {
        match self.decoder_bytes_per_cpu {
            0 => "none".into(),
            count => format!("about {} for each CPU", output::bytes(count)),
        }
    }

    /// The oldest version.
    pub fn oldest(&self) -> &str {
        &self.oldest
    }

    pub const fn decoder_bytes(&self) -> u64 {
        self.decoder_bytes_per_cpu
    }

    pub fn options(&self) -> String {
        self.options.join(" ")
    }

    pub const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }
}

/// The demands of an open image.
pub fn needs(image: &Image) -> Needs {
    Needs::of(image.superblock(), image.compr_cfgs())
}
