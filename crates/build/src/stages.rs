//! The stages of a build, from a source to a complete image.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anteros_core::FileKind;
use anteros_format::superblock::SUPERBLOCK_OFFSET;

use crate::block_list::Known;
use crate::data::{self, Job, Stored, Written};
use crate::devices::{self, Devices};
use crate::emit::Emitter;
use crate::hints::Ways;
use crate::layout::{self, Layout, Places};
use crate::look::Look;
use crate::output::{self, Output, Store};
use crate::patch;
use crate::plan::Plan;
use crate::source::Scanned;
use crate::tail::KeptEnds;
use crate::tar::direct::Direct;
use crate::tree::Tree;
use crate::{
    Content, Error, Input, Observer, Options, PatchSummary, ReadRange, Summary, attributes,
    digests, hash_tree, kept, order, packed, parts, same, settle, superblock, sweep,
};

/// An image in the room of an older one is empty to one part of so many at the most, or to so many bytes.
const WASTE_DIVISOR: u64 = 50;
const WASTE_BYTES: u64 = 64 << 10;

/// Everything that an image is built from.
pub(crate) struct Build<'a, 'b> {
    source: Input<'a>,
    pub options: &'b Options,
    observer: &'b dyn Observer,
    pub cancel: &'b AtomicBool,
}

impl<'a, 'b> Build<'a, 'b> {
    /// Checks the options.
    pub fn new(
        source: impl Into<Input<'a>>,
        options: &'b Options,
        observer: &'b dyn Observer,
        cancel: &'b AtomicBool,
    ) -> Result<Self, Error> {
        options.check()?;
        Ok(Self {
            source: source.into(),
            options,
            observer,
            cancel,
        })
    }

    /// Builds an image, which is to have this name, in a store that is opened when the source is known. A patch that changes
    /// nothing, or is but to be told, opens none.
    pub fn run(
        self,
        image: &Path,
        store: impl FnOnce() -> Result<Store, Error>,
    ) -> Result<(Summary, Option<Output>), Error> {
        let Self {
            source,
            options,
            observer,
            cancel,
        } = self;
        let options = &options.of_content();
        if options.renew.is_some() && output::is_written_in_place(image, options) {
            let text = "an image in the room of an older one is a new file, and nothing is written in place";
            return Err(Error::Option(text.into()));
        }
        let mut store = Some(store);
        let mut open = || store.take().expect("an image is opened once")();
        let is_direct = source.is_archive() && Direct::is_allowed(options);
        let former = source.former(options, observer, cancel)?;
        let mut begun = match is_direct && !output::is_written_in_place(image, options) {
            true => Some(begin(open()?, options, &Devices::default())?),
            false => None,
        };
        let Scanned {
            source,
            mut tree,
            mut warnings,
            ..
        } = scan(source, image, options, observer, cancel, begun.as_mut())?;
        warnings += attributes::assign(&mut tree, &source, options, observer)?;
        digests::assign(&mut tree, &source, options, cancel)?;
        if let Some(text) = order::missing(&tree, &options.first) {
            observer.warn(source.path(), &text);
            warnings += 1;
        }
        let (ways, hints) = Ways::new(&tree, options);
        let options = &Options {
            hints,
            ..options.clone()
        };
        let mut plan = Plan::new(&source, &mut tree, options, ways)?;
        let look = Look {
            source: &source,
            tree: &tree,
            options,
            cancel,
        };
        let patched = match &former {
            Some(former) => Some(patch::find(&look, former, &mut plan, observer)?),
            None => None,
        };
        if let Some(summary) = &patched {
            let is_nothing = summary.is_empty() && options.renew.is_none();
            if is_nothing || options.is_dry_run() {
                let summary = Summary {
                    warnings,
                    patch: patched,
                    ..Summary::default()
                };
                return Ok((summary, None));
            }
        } else {
            kept::find(&look, &mut plan)?;
        }
        let options = &match options.is_patch() && plan.packed.is_none() {
            true => options.unpacked(),
            false => options.clone(),
        };
        let look = Look { options, ..look };
        let (devices, missing) = arrange(&look, &mut plan)?;
        if let Some(text) = missing {
            observer.warn(source.path(), &text);
            warnings += 1;
        }
        let ranges = options.hot.iter().map(ReadRange::memory_bytes);
        let former_tree = former.as_ref().map(|former| former.tree.memory_bytes());
        let held = tree_bytes(&tree, &plan) + ranges.sum::<u64>() + former_tree.unwrap_or(0);
        let options = &options.beside(held);
        let mut output = match (begun, &options.append) {
            (Some(output), _) => output,
            (None, Some(append)) if plan.lower.is_none() => {
                let output = Output::append(open()?, options, append.end);
                match &former {
                    Some(former) => patch::begin(output, former, &plan, cancel)?,
                    None => output,
                }
            }
            (None, _) => begin(open()?, options, &devices)?,
        };
        if let Some(home) = &plan.patched {
            output.pad_to(home.start)?;
        }
        let job = Job {
            source: &source,
            tree: &tree,
            plan: &plan,
            options,
            cancel,
            former: former.as_ref(),
            ends: KeptEnds::new(options),
        };
        let summary = write(&job, devices, &mut output, observer)?;
        let append = options.append.as_ref().filter(|_| plan.lower.is_none());
        let bytes = append.map_or(0, |append| append.end);
        let bytes = summary.image_bytes.saturating_sub(bytes);
        Ok((
            Summary {
                warnings,
                patch: patched.map(|patched| PatchSummary { bytes, ..patched }),
                ..summary
            },
            Some(output),
        ))
    }
}

/// Decides the order of content, and which parts of it files share. Returns what lies on other devices, and which ranges of a
/// profile are missing.
fn arrange(look: &Look<'_>, plan: &mut Plan) -> Result<(Devices, Option<String>), Error> {
    let missing = sweep::find(look, plan);
    plan.order = order::of(look)?;
    sweep::put_first(&mut plan.order, &plan.sweep);
    let devices = devices::store(look, plan)?;
    same::find(look, plan)?;
    parts::find(look, plan)?;
    sweep::settle(look.tree, plan, look.options.block_bytes().into());
    plan.agree(look.tree);
    Ok((devices, missing))
}

/// A file without a name for an image that is not complete.
pub(crate) fn spool(options: &Options, usual: impl AsRef<Path>) -> Result<Store, Error> {
    Store::spool(options.spool.as_deref().unwrap_or(usual.as_ref()))
}

/// Writes an image of what is planned: content, metadata and, last, the superblock.
fn write(
    job: &Job<'_>,
    devices: Devices,
    output: &mut Output,
    observer: &dyn Observer,
) -> Result<Summary, Error> {
    let Job { plan, options, .. } = *job;
    let Written {
        mut stored,
        packed,
        progress,
    } = data::write(job, output, observer)?;
    let free_bytes = settle::settle(job, &mut stored, output)?;
    let data_end = output.position();
    let room = superblock::room(options, plan.shared.prefixes.table().len(), &devices);
    let layout = Layout::new(job, &mut stored, packed.size(), &room, output);
    let packed = packed::directories(job, &stored, &layout, packed, output)?;
    let former = plan.packed.as_ref().map_or(&[][..], |former| &former.runs);
    let packed = packed.into_inode(former);
    layout::place_blocks(job, &mut stored, output)?;
    let emitter = Emitter {
        job,
        stored: &stored,
        packed: packed.as_ref(),
        layout: &layout,
        devices: &devices,
    };
    let places = emitter.metadata(output, observer, progress)?;
    emitter.inodes_in_slots(output)?;
    if let Some(lower) = &plan.lower {
        lower.check_behind(places.end, options)?;
    }
    if let Some(renewed) = plan.renewed() {
        let waste = free_bytes + layout.free_bytes + renewed.packed_waste;
        check_renewed(options, layout.nid(0), waste, places.end)?;
    }
    let known = Known {
        job,
        stored: &stored,
        layout: &layout,
        places: &places,
    };
    known.write_list()?;
    let (superblock, uuid) = emitter.superblock(&places, output);
    let root = match options.patch {
        Some(_) => finish_patch(&emitter, &places, &superblock, output)?,
        None => None,
    };
    output.complete(SUPERBLOCK_OFFSET, &superblock, root)?;
    let verity = hash_tree::append(options, uuid, output, job.cancel)?;
    let devices = devices.place(options)?;
    Ok(Summary {
        image_bytes: places.end,
        device_bytes: devices.iter().map(|device| device.bytes).sum(),
        devices,
        verity,
        metadata_bytes: places.end - data_end,
        shared_xattrs: plan.shared.count,
        uuid,
        linux: options.linux_of(&superblock),
        ..count(job.tree, &stored)
    })
}

/// Checks that an image in the room of an older one may be so, and that not too much of it is empty.
fn check_renewed(options: &Options, root: u64, waste: u64, end: u64) -> Result<(), Error> {
    let refuse = |why: String| Err(Error::NotRenewed(why));
    if !options.is_wide() && root > u64::from(u16::MAX) {
        return refuse("there is no room for the inode of the root".into());
    }
    match waste > WASTE_BYTES.max(end / WASTE_DIVISOR) {
        true => refuse(format!("{waste} of its {end} bytes would be empty")),
        false => Ok(()),
    }
}

/// Writes the record of a patch; answers where a root inode belongs that lies apart from the others, and its bytes.
fn finish_patch(
    emitter: &Emitter<'_>,
    places: &Places,
    superblock: &[u8],
    output: &mut Output,
) -> Result<Option<(u64, Vec<u8>)>, Error> {
    let Job { plan, options, .. } = emitter.job;
    let root = emitter.root_apart()?;
    if let Some(home) = &plan.patched {
        patch::append_record(options, home, superblock, places.end, output)?;
    }
    Ok(root)
}

/// Begins an image, with room for its superblock and what follows that.
fn begin(store: Store, options: &Options, devices: &Devices) -> Result<Output, Error> {
    let reserved = superblock::area_bytes(options, devices)?;
    Output::create(store, options, reserved)
}

/// Scans a source. Whatever goes wrong once the build is cancelled is no fault of the source.
fn scan(
    source: Input<'_>,
    image: &Path,
    options: &Options,
    observer: &dyn Observer,
    cancel: &AtomicBool,
    output: Option<&mut Output>,
) -> Result<Scanned, Error> {
    let scanned = source.scan(image, options, observer, cancel, output);
    let scanned = scanned.map_err(|error| match cancel.load(Ordering::Relaxed) {
        true => Error::Cancelled,
        false => error,
    })?;
    Ok(match options.content {
        Content::Copy | Content::Refer => scanned,
        Content::Reserve | Content::Zero => scanned.unread(),
    })
}

/// Bytes of memory that the tree takes, with all that will be known of it when it is stored.
fn tree_bytes(tree: &Tree, plan: &Plan) -> u64 {
    let stored = tree.nodes.len() * size_of::<Stored>();
    tree.memory_bytes() + plan.memory_bytes() + stored as u64
}

/// Counts inodes by kind, and regular files by the way they are stored.
fn count(tree: &Tree, stored: &[Stored]) -> Summary {
    let mut summary = Summary::default();
    for (node, stored) in tree.nodes.iter().zip(stored) {
        match node.kind {
            FileKind::Directory => summary.directories += 1,
            FileKind::Symlink => summary.symlinks += 1,
            FileKind::Regular => {
                summary.files += 1;
                summary.input_bytes += node.size;
                match stored {
                    Stored::Compressed { body, .. } => {
                        summary.compressed_files += 1;
                        summary.shared_bytes += body.shared_bytes();
                    }
                    Stored::Packed { .. } => summary.packed_files += 1,
                    Stored::Chunked { .. } | Stored::Elsewhere => summary.chunked_files += 1,
                    Stored::Flat { inline: 1.., .. } => summary.inline_files += 1,
                    Stored::Flat { .. } => summary.flat_files += 1,
                    Stored::Nothing | Stored::Kept => {}
                }
            }
            _ => summary.specials += 1,
        }
        if node.kind != FileKind::Directory {
            summary.hard_links += u64::from(node.nlink) - 1;
        }
    }
    summary
}
