//! The options of `mkfs.erofs`, read into those of the builder.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use anteros_build::{
    Compression, Exclude, Hint, InodeForm, Options, PCLUSTER_BLOCKS_MAX, Quick, ReadRange, Setting,
    UuidChoice,
};
use anteros_image::Image;

use super::arguments::Args;
use super::compressor::{Compressor, Compressors};
use super::hints::Choice;
use super::lists;
use super::preset::{self, Preset};
use super::target::Target;
use super::values::{Content, Extended, Holes, Order, Uuid};
use crate::failure::{Failure, Kind};
use crate::profiles;

/// Blocks have two to this bytes unless told otherwise.
const BLOCK_BITS: u8 = 12;

/// Bits of a block of an index, as archives of tar have it.
const TAR_BLOCK_BITS: u8 = 9;

impl Args {
    /// Returns what the arguments and `SOURCE_DATE_EPOCH` ask the builder for.
    pub fn options(&self, base: Option<&Image>) -> Result<Options, Failure> {
        let options = match &self.target {
            None => self.options_by(self.preset())?,
            Some(target) => self.options_for(target)?,
        };
        let options = match base {
            Some(image) => Self::options_over(image, options)?,
            None => options,
        };
        let fs_config = self.fs_config_file.as_deref().map(lists::fs_config);
        let file_contexts = self.file_contexts.as_deref().map(lists::file_contexts);
        Ok(Options {
            fs_config: fs_config.transpose()?,
            file_contexts: file_contexts.transpose()?,
            mount_point: self.mount_point.as_bytes().to_vec(),
            hash_tree: self.verity.tree(),
            block_list: self.block_list_file.clone(),
            ..options
        })
    }

    /// The best options that a machine reads.
    fn options_for(&self, target: &Target) -> Result<Options, Failure> {
        target.check_told(self.cluster)?;
        let compresses = !self.is_peer && self.chunksize.is_none();
        let usual = self.preset().or(compresses.then_some(preset::BALANCED));
        let variants = usual.map_or(vec![None], |usual| {
            let block_bytes = 1 << self.block_bits.unwrap_or(BLOCK_BITS);
            let clusters = target.clusters(usual.cluster_bytes);
            let clusters: Vec<_> = clusters.map(|bytes| bytes.max(block_bytes)).collect();
            let variants = usual.variants(&clusters, target.knows_kernel());
            variants.into_iter().map(Some).collect()
        });
        let mut refused = None;
        for variant in variants {
            let mut options = self.options_by(variant)?;
            if self.holes.is_none() && target.has_no_chunks() {
                options.holes = anteros_build::Holes::Ignore;
            }
            match target.check(&options) {
                Ok(()) => return Ok(options),
                // The refusal of the most modest one is left.
                Err(failure) => refused = Some(failure),
            }
        }
        Err(refused.expect("there is a variant"))
    }

    fn options_by(&self, preset: Option<Preset>) -> Result<Options, Failure> {
        let usual = match self.is_index() {
            true => TAR_BLOCK_BITS,
            false => self.block_bits_of_images()?.unwrap_or(BLOCK_BITS),
        };
        let block_bits = self.block_bits.unwrap_or(usual);
        let source_date_epoch = source_date_epoch()?;
        let mut options = Options {
            block_bits,
            compression: self.compression(block_bits, preset.as_ref())?,
            hints: self.hints(block_bits, preset.as_ref())?,
            holes: match self.holes {
                // Chunks with holes need Linux 5.15, which whoever asks for the old indexes does not have.
                None if self.is_legacy() => anteros_build::Holes::Ignore,
                None | Some(Holes::Auto) => anteros_build::Holes::Auto,
                Some(Holes::Keep) => anteros_build::Holes::Keep,
                Some(Holes::Compress) => anteros_build::Holes::Ignore,
            },
            first: self.first()?,
            hot: self.hot()?,
            hot_pcluster_bytes: self
                .hot_cluster
                .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            chunk_bytes: self.chunksize,
            blob_device: self.blobdev.clone(),
            tar_index: self.is_index(),
            ignore_mtime: self.ignore_mtime,
            fixed_time: self.fixed_time(source_date_epoch),
            clamp_time: source_date_epoch,
            image_time: self.image_time(source_date_epoch),
            uuid: self.uuid_choice()?,
            label: self.label.clone().into_bytes(),
            xattr_share_above: match self.xattr_share {
                ..0 => None,
                count => Some(u32::try_from(count).unwrap_or(u32::MAX)),
            },
            xattr_prefixes: self.xattr_prefixes(),
            force_uid: self.force_uid.or(self.all_root.then_some(0)),
            force_gid: self.force_gid.or(self.all_root.then_some(0)),
            uid_map: self.uid_map.clone(),
            gid_map: self.gid_map.clone(),
            uid_offset: self.uid_offset,
            gid_offset: self.gid_offset,
            data_align_blocks: self.dsunit.max(1),
            image_align_blocks: self.image_align_blocks()?,
            root_xattr_bytes: self.root_xattr_isize,
            digest_xattr: self
                .xattr_inode_digest
                .as_ref()
                .map(|name| name.as_bytes().to_vec()),
            exclude: self.exclude()?,
            hard_dereference: self.hard_dereference,
            workers: self.workers.count(),
            memory_bytes: self.memory,
            offset: self.offset,
            android_sparse: self.android_sparse,
            overwrite: self.force,
            keeps_names: self.is_peer,
            aufs_whiteouts: self.aufs,
            strip_overlay: self.strips_overlay(),
            keep_overlay: self.keeps_overlay(),
            content: self.content_wanted(),
            bare_headers: self.has_bare_headers(),
            spool: std::env::var_os("TMPDIR")
                .filter(|directory| !directory.is_empty())
                .map(PathBuf::from),
            ..Options::default()
        };
        options.metabox = self.metabox(options.compression, preset.as_ref())?;
        let extended = preset.map_or(&[][..], |preset| preset.extended);
        let extended = || extended.iter().chain(&self.extended);
        extended().for_each(|option| apply(*option, &mut options));
        let says_dedupe = extended().any(|option| matches!(option, Extended::Dedupe(_)));
        if !says_dedupe {
            // The kernels that read one of the two read the other.
            options.dedupe = options.fragments.is_some_and(|fragments| !fragments.all);
        }
        if let Some(on) = self.compress_directories {
            options.compress_directories = on;
        }
        options.order = self.order(preset.as_ref(), options.fragments.is_some());
        Ok(options)
    }

    /// Returns what becomes of the content of files.
    pub(super) fn content_wanted(&self) -> anteros_build::Content {
        let usual = match self.has_bare_headers() {
            true => Content::Zero,
            false => Content::Copy,
        };
        self.content.unwrap_or(usual).into()
    }

    /// Returns whether content stays in images that are sources.
    pub(super) fn refers(&self) -> bool {
        self.content == Some(Content::Refer)
    }

    /// Returns whether the image has all content.
    pub(super) fn copies_content(&self) -> bool {
        self.content_wanted() == anteros_build::Content::Copy
    }

    /// Returns what the image is a multiple of, which has one more bit at most than was told.
    fn image_align_blocks(&self) -> Result<u32, Failure> {
        let blocks = self.fsalignblks.checked_next_power_of_two();
        let message = || format!("--fsalignblks={}: 1 GiB is the most", self.fsalignblks);
        blocks.ok_or_else(|| Failure::new(Kind::Usage, message()))
    }

    fn is_legacy(&self) -> bool {
        let told = self.extended.iter().rev().find_map(|option| match option {
            Extended::LegacyCompress(legacy) => Some(*legacy),
            _ => None,
        });
        told.unwrap_or(false)
    }

    /// The time of the image and of the files that keep none of their own; `None` leaves it to the builder.
    fn image_time(&self, source_date_epoch: Option<i64>) -> Option<i64> {
        let form = self.extended.iter().rev().find_map(|option| match option {
            Extended::InodeForm(form) => Some(*form),
            _ => None,
        });
        let drops_times = self.ignore_mtime || form == Some(InodeForm::Compact);
        let told = self.time.map(|time| match source_date_epoch {
            Some(epoch) if self.is_peer => epoch,
            _ => time,
        });
        told.or(source_date_epoch.filter(|_| drops_times))
            .or_else(|| drops_times.then(now))
    }

    /// The time of all files. SOURCE_DATE_EPOCH takes it away from mkfs.erofs, whose files keep times before that.
    fn fixed_time(&self, source_date_epoch: Option<i64>) -> Option<i64> {
        let is_overruled = self.is_peer && source_date_epoch.is_some();
        self.time.filter(|_| !self.mkfs_time && !is_overruled)
    }

    /// Returns the long prefixes of attributes, each once.
    fn xattr_prefixes(&self) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for prefix in &self.xattr_prefix {
            let prefix = prefix.as_bytes();
            if !prefixes.iter().any(|known| known == prefix) {
                prefixes.push(prefix.to_vec());
            }
        }
        prefixes
    }

    /// Returns the preset that was asked for.
    fn preset(&self) -> Option<Preset> {
        let presets = [
            (self.small, preset::SMALL),
            (self.balanced, preset::BALANCED),
            (self.fast, preset::FAST),
        ];
        let asked = presets.into_iter().find(|(is_asked, _)| *is_asked);
        asked.map(|(_, preset)| preset)
    }

    /// Returns the order of files, some of which are packed together or not.
    fn order(&self, preset: Option<&Preset>, packs: bool) -> anteros_build::Order {
        let usual = match packs {
            true => anteros_build::Order::Group,
            // It is called in pipes, where time counts.
            false if self.is_peer => anteros_build::Order::Stream,
            false => anteros_build::Order::Path,
        };
        match self.order {
            Some(Order::Path) => anteros_build::Order::Path,
            // Nothing that is packed can be written as it comes.
            Some(Order::Stream) if packs => usual,
            Some(Order::Stream) => anteros_build::Order::Stream,
            Some(Order::Group) => anteros_build::Order::Group,
            Some(Order::Name) => anteros_build::Order::Name,
            Some(Order::Kind) => anteros_build::Order::Kind,
            None => preset.and_then(|preset| preset.order).unwrap_or(usual),
        }
    }

    /// The paths of files that are stored first.
    fn first(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let Some(path) = &self.order_list else {
            return Ok(Vec::new());
        };
        let text = std::fs::read(path).map_err(|e| Failure::system(path, &e))?;
        let lines = text.split(|byte| *byte == b'\n');
        let paths = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec);
        Ok(paths.collect())
    }

    /// The ranges of the profile.
    fn hot(&self) -> Result<Arc<[ReadRange]>, Failure> {
        let Some(path) = &self.profile else {
            return Ok(Arc::default());
        };
        let ranges = profiles::load(path)?
            .ranges
            .into_iter()
            .map(|range| ReadRange {
                path: range.path,
                offset: range.offset,
                len: range.len,
            });
        Ok(ranges.collect())
    }

    /// Returns what compresses, and whether that was asked for.
    fn compressor(&self, preset: Option<&Preset>) -> (Compressor, bool) {
        match (&self.compressor, preset) {
            (Some(compressors), _) => (compressors.all()[0], true),
            (None, Some(preset)) => (preset.compressor, true),
            (None, None) if self.is_peer || self.append => (Compressor::None, false),
            // Chunks are uncompressed, and what lies in an archive.
            (None, None) if self.chunksize.is_some() || self.is_index() => (Compressor::None, true),
            (None, None) => (preset::BALANCED.compressor, false),
        }
    }

    fn compression(
        &self,
        block_bits: u8,
        preset: Option<&Preset>,
    ) -> Result<Option<Compression>, Failure> {
        let usage = |text: &str| Failure::new(Kind::Usage, text);
        let default = match preset {
            Some(preset) => preset
                .cluster_bytes
                .min(u64::from(PCLUSTER_BLOCKS_MAX) << block_bits),
            None if self.is_peer => 1 << block_bits,
            None => preset::BALANCED.cluster_bytes,
        };
        let (compressor, is_told) = self.compressor(preset);
        let too_large = |_| usage("clusters have at most 1M");
        let cluster_bytes = u32::try_from(self.cluster.unwrap_or(default)).map_err(too_large)?;
        let Some(codec) = compressor.codec(cluster_bytes) else {
            return match self.cluster {
                Some(_) if is_told => Err(usage("-C has no meaning without compression")
                    .hint("leave -znone or --chunksize away")),
                _ => Ok(None),
            };
        };
        Ok(Some(Compression {
            pcluster_bytes: cluster_bytes,
            quick: self.quick(cluster_bytes),
            window_bytes: u32::try_from(self.window).unwrap_or(u32::MAX),
            min_gain_percent: self.min_gain,
            legacy_index: self.is_legacy(),
            ..Compression::new(codec)
        }))
    }

    /// Returns what is stored in a quicker way: by the second codec of those that are told.
    fn quick(&self, cluster_bytes: u32) -> Option<Quick> {
        let told = self.compressor.as_ref().map(Compressors::all);
        let second = told.and_then(|all| all.get(1));
        self.quick.or(self.hot_quick).map(|percent| Quick {
            codec: second.and_then(|second| second.codec(cluster_bytes)),
            percent,
            of_hot: self.quick.is_none(),
        })
    }

    /// Returns how metadata is compressed beside files that are compressed so.
    fn metabox(
        &self,
        files: Option<Compression>,
        preset: Option<&Preset>,
    ) -> Result<Option<Setting>, Failure> {
        let usual = [self.compressor(preset).0];
        let compressors = self.compressor.as_ref();
        let compressors = compressors.map_or(&usual[..], Compressors::all);
        let codec = files.map(|files| files.codec);
        let setting = self.metadata.map(|m| m.setting(codec, compressors));
        setting
            .transpose()
            .map_err(|e| Failure::new(Kind::Usage, e))
    }

    fn hints(&self, block_bits: u8, preset: Option<&Preset>) -> Result<Vec<Hint>, Failure> {
        let Some(path) = &self.compress_hints else {
            return Ok(Vec::new());
        };
        let usual = [self.compressor(preset).0];
        if usual == [Compressor::None] {
            let message = "--compress-hints has no meaning without compression";
            return Err(Failure::new(Kind::Usage, message).hint("tell a codec by -z"));
        }
        let choice = Choice {
            compressors: self
                .compressor
                .as_ref()
                .map_or(&usual[..], Compressors::all),
            block_bytes: 1 << block_bits,
        };
        choice.read(path)
    }

    fn uuid_choice(&self) -> Result<UuidChoice, Failure> {
        Ok(match self.uuid {
            None => UuidChoice::FromContent,
            Some(Uuid::Given(bytes)) => UuidChoice::Given(bytes),
            Some(Uuid::Random) => UuidChoice::Given(random_uuid()?),
        })
    }

    fn exclude(&self) -> Result<Vec<Exclude>, Failure> {
        let paths = self
            .exclude_path
            .iter()
            .map(|path| Ok(Exclude::Path(path.as_bytes().to_vec())));
        let pattern =
            |text: &String| Exclude::pattern(text).map_err(|e| Failure::new(Kind::Usage, e));
        paths
            .chain(self.exclude_regex.iter().map(pattern))
            .collect()
    }
}

fn apply(option: Extended, options: &mut Options) {
    match option {
        Extended::LegacyCompress(_) | Extended::FragmentsOnce => {}
        Extended::Fragments(fragments) => options.fragments = fragments,
        Extended::InlineData(on) => options.inline_data = on,
        Extended::Dedupe(on) => options.dedupe = on,
        Extended::InlineTails(on) => options.inline_tails = on,
        Extended::InodeForm(form) => options.inode_form = form,
        Extended::ChunkIndexes(on) => options.chunk_indexes = on,
        Extended::Wide(on) => options.wide = on,
        Extended::DotOmitted(on) => options.dot_omitted = on,
        Extended::Directories(on) => {
            options.compress_directories = on && options.compression.is_some();
        }
        Extended::Metadata(pcluster_bytes) => {
            let files = options.compression.map(|files| Setting {
                codec: files.codec,
                pcluster_bytes,
                quick: None,
            });
            options.metabox = options.metabox.or(files);
        }
        Extended::NoChecksum => options.checksum = false,
        Extended::XattrFilter(on) => options.xattr_filter = on,
        Extended::PlainPrefixes(on) => options.plain_xattr_prefixes = on,
    }
}

/// A version 4 UUID.
fn random_uuid() -> Result<[u8; 16], Failure> {
    let path = std::path::Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let read =
        std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut bytes));
    read.map_err(|e| Failure::system(path, &e))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH") else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    let message = || {
        format!(
            "SOURCE_DATE_EPOCH is `{}`, not a number of seconds",
            value.to_string_lossy()
        )
    };
    Ok(Some(
        seconds.ok_or_else(|| Failure::new(Kind::Usage, message()))?,
    ))
}
