//! `anteros log dump`

mod text;
mod values;

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anteros_core::{FileKind, FsError};
use anteros_log::layout::Superblock;
use anteros_log::layout::checkpoint::Checkpoint;
use anteros_log::layout::node::Attributes;
use anteros_log::layout::packed::{PackedHeader, Slot, SlotKind};
use anteros_log::layout::record::records;
use anteros_log::layout::summary::Owner;
use anteros_log::{Content, Group, InodeView, Inspector, Options, Place, system_clock};

use self::text::{area_text, header_text, node_text, record_text, run_text};
use self::values::Values;
use super::open;
use crate::args::ReportArgs;
use crate::failure::{Failure, Kind, Outcome, Verdict};
use crate::output;

/// Show what a log says about itself: superblock, checkpoints, an inode, a block, the groups behind the checkpoint
///
/// Nothing is changed. A log that no mount would open is shown as far as it can be read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or block device
    device: PathBuf,

    /// The inode with this number: attributes, nodes, where its content lies
    #[arg(long, value_name = "NUMBER")]
    inode: Option<u32>,

    /// The inode of this path
    #[arg(long, value_name = "PATH", conflicts_with = "inode")]
    path: Option<OsString>,

    /// The block with this number: what it is, and whose
    #[arg(long, value_name = "NUMBER")]
    block: Option<u64>,

    /// The groups behind the checkpoint, which a mount would replay, record by record
    #[arg(long)]
    groups: bool,

    #[command(flatten)]
    report: ReportArgs,
}

impl Args {
    pub fn run(self) -> Outcome {
        let device = open::to_read(&self.device)?;
        let opened = Inspector::open(device, &Options::new(system_clock));
        let mut log = opened.map_err(|error| open::failure(self.device.display(), &error))?;
        match self.report.json {
            true => output::json(&self.values(&mut log)?)?,
            false => output::text(&self.page(&mut log)?.to_string())?,
        }
        Ok(Verdict::Good)
    }

    fn page(&self, log: &mut Inspector) -> Result<Page, Failure> {
        let mut page = Page::default();
        if let Some(inode) = self.look_at_inode(log)? {
            page.inode(&inode);
        }
        if let Some((number, place)) = self.look_at_block(log)? {
            page.block(number, &place);
        }
        if self.groups {
            page.groups(log, &self.find_groups(log)?);
        }
        if page.0.is_empty() {
            page.superblocks(log);
            page.checkpoints(log);
        }
        Ok(page)
    }

    fn values(&self, log: &mut Inspector) -> Result<serde_json::Value, Failure> {
        let mut values = Values::default();
        if let Some(inode) = self.look_at_inode(log)? {
            values.inode(&inode);
        }
        if let Some((number, place)) = self.look_at_block(log)? {
            values.block(number, &place);
        }
        if self.groups {
            let (groups, is_broken) = self.find_groups(log)?;
            values.groups(log, &groups, is_broken);
        }
        if values.is_empty() {
            values.superblocks(log);
            values.checkpoints(log);
        }
        Ok(values.into_value())
    }

    /// The inode that is asked for.
    fn look_at_inode(&self, log: &mut Inspector) -> Result<Option<InodeView>, Failure> {
        if let Some(path) = &self.path {
            let path = path.as_bytes();
            let found = log.find(path).and_then(|ino| log.inode(ino));
            let found = found.map_err(|error| self.failure(output::name(path), &error));
            return found.map(Some);
        }
        let found = self.inode.map(|ino| {
            log.inode(ino)
                .map_err(|error| self.failure(format_args!("inode {ino}"), &error))
        });
        found.transpose()
    }

    /// The block that is asked for.
    fn look_at_block(&self, log: &mut Inspector) -> Result<Option<(u64, Place)>, Failure> {
        let found = self.block.map(|block| {
            let place = log.block(block);
            let place = place.map_err(|error| self.failure(format_args!("block {block}"), &error));
            Ok((block, place?))
        });
        found.transpose()
    }

    fn find_groups(&self, log: &Inspector) -> Result<(Vec<Group>, bool), Failure> {
        log.groups()
            .map_err(|error| open::failure(self.device.display(), &error))
    }

    fn failure(&self, place: impl Display, error: &FsError) -> Failure {
        let kind = match error {
            FsError::Corrupt(_) => Kind::Corrupt,
            FsError::Unsupported => Kind::Unsupported,
            _ => Kind::System,
        };
        Failure::new(
            kind,
            format_args!("{}: {place}: {error}", self.device.display()),
        )
    }
}

/// A line of its own, and those that belong to it.
struct Line {
    name: String,
    text: String,
    below: Vec<String>,
}

/// Text, a line for each thing.
#[derive(Default)]
struct Page(Vec<Line>);

impl Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { name, text, below } in &self.0 {
            writeln!(f, "{name:<14} {text}")?;
            for text in below {
                writeln!(f, "  {text}")?;
            }
        }
        Ok(())
    }
}

impl Page {
    fn line(&mut self, name: &str, what: impl Display) {
        self.0.push(Line {
            name: name.to_owned(),
            text: what.to_string(),
            below: Vec::new(),
        });
    }

    /// A line that belongs to the one above.
    fn below(&mut self, what: impl Display) {
        if let Some(line) = self.0.last_mut() {
            line.below.push(what.to_string());
        }
    }

    fn superblocks(&mut self, log: &Inspector) {
        for (number, copy) in log.superblocks().iter().enumerate() {
            let name = format!("superblock {number}");
            match copy {
                Ok(copy) if copy == log.superblock() => self.line(
                    &name,
                    format_args!("generation {}, counts", copy.generation),
                ),
                Ok(copy) => self.line(&name, format_args!("generation {}", copy.generation)),
                Err(fault) => self.line(&name, format_args!("does not count: {fault}")),
            }
        }
        let superblock = log.superblock();
        let Superblock {
            blocks,
            checkpoint_start,
            checkpoint_blocks,
            sit_start,
            sit_blocks,
            bst_start,
            bst_blocks,
            ..
        } = superblock;
        let Superblock {
            nat_start,
            nat_blocks,
            main_start,
            segments,
            nids,
            reserved_segments,
            ..
        } = superblock;
        self.line("label", output::name(superblock.label.as_bytes()));
        self.line("uuid", output::uuid(&superblock.uuid));
        self.line("blocks", blocks);
        self.line(
            "packs",
            format_args!("at block {checkpoint_start}, 2 of {checkpoint_blocks} blocks"),
        );
        self.line(
            "segment table",
            format_args!("at block {sit_start}, 2 of {sit_blocks} blocks"),
        );
        self.line(
            "block states",
            format_args!("at block {bst_start}, 2 of {bst_blocks} blocks"),
        );
        self.line(
            "node addresses",
            format_args!("at block {nat_start}, 2 of {nat_blocks} blocks, for {nids} numbers"),
        );
        self.line(
            "main area",
            format_args!(
                "at block {main_start}, {segments} segments, {reserved_segments} of them reserved"
            ),
        );
        self.line(
            "sections",
            format_args!(
                "of {} segments, {} to a zone",
                superblock.segments_per_section, superblock.sections_per_zone
            ),
        );
    }

    fn checkpoints(&mut self, log: &Inspector) {
        for (number, pack) in log.packs().iter().enumerate() {
            let name = format!("pack {number}");
            let is_newest = |pack: &Checkpoint| {
                log.newest()
                    .is_some_and(|newest| newest.version == pack.version)
            };
            match pack {
                Ok(pack) if is_newest(pack) && pack.superseded => self.line(
                    &name,
                    format_args!(
                        "version {}, out of date: a newer one was there",
                        pack.version
                    ),
                ),
                Ok(pack) if is_newest(pack) => {
                    self.line(&name, format_args!("version {}, counts", pack.version))
                }
                Ok(pack) => self.line(&name, format_args!("version {}, older", pack.version)),
                Err(fault) => self.line(&name, format_args!("is not whole: {fault}")),
            }
        }
        if let Some(newest) = log.newest() {
            self.checkpoint(newest);
        }
        match log.recovery() {
            Ok(found) if found.dropped => {
                self.line(
                    "groups",
                    format_args!("{} behind it, and one that is not whole", found.groups),
                );
            }
            Ok(found) => self.line("groups", format_args!("{} behind it", found.groups)),
            Err(error) => self.line("not mountable", error),
        }
    }

    fn checkpoint(&mut self, pack: &Checkpoint) {
        let cleanly = if pack.clean {
            "after it the log was unmounted"
        } else {
            "the log was in use"
        };
        self.line(
            "written",
            format_args!("{}, {cleanly}", output::time(pack.time)),
        );
        self.line(
            "valid blocks",
            format_args!(
                "{}, and {} preallocated",
                pack.used_blocks, pack.reserved_blocks
            ),
        );
        self.line(
            "nodes",
            format_args!(
                "{}, of which {} are inodes; the search goes on at {}",
                pack.nodes, pack.inodes, pack.next_nid
            ),
        );
        self.line("next group", pack.next_sequence);
        if pack.record_ino != 0 {
            self.line("own record", format_args!("inode {}", pack.record_ino));
        }
        let journals = (
            pack.nat_journal.len(),
            pack.sit_journal.len(),
            pack.bst_journal.len(),
        );
        self.line(
            "journals",
            format_args!(
                "{} nodes, {} segments, {} blocks",
                journals.0, journals.1, journals.2
            ),
        );
        if !pack.orphans.is_empty() {
            let orphans: Vec<_> = pack.orphans.iter().map(u32::to_string).collect();
            self.line("orphans", orphans.join(" "));
        }
        if pack.orphans_left_out {
            self.line(
                "orphans",
                "more than there is room for: all inodes without a link",
            );
        }
        if !pack.rewritten.is_empty() {
            let segments: Vec<_> = pack
                .rewritten
                .iter()
                .map(|(at, _)| at.to_string())
                .collect();
            self.line("summaries of", segments.join(" "));
        }
        for head in &pack.heads {
            let next = head
                .next_segment
                .map(|next| format!(", goes on in segment {next}"))
                .unwrap_or_default();
            let (segment, block) = (head.segment, head.next);
            let what = if head.threaded { "hole from" } else { "block" };
            let text = format!(
                "{}: segment {segment}, next {what} {block}, serial {}{next}",
                head.kind.name(),
                head.serial
            );
            self.line("head", text);
        }
    }

    fn inode(&mut self, inode: &InodeView) {
        let Attributes {
            kind,
            perm,
            is_inline,
            is_launched,
            is_settled,
            is_own,
            nlink,
            uid,
            gid,
            size,
            blocks,
            generation,
            parent,
            ..
        } = inode.attributes;
        self.line(
            "inode",
            format_args!(
                "{}, a {}, mode {perm:04o}, generation {generation}",
                inode.ino,
                kind.name()
            ),
        );
        self.line("owner", format_args!("{uid}:{gid}"));
        let own = if is_own { ", the log's own" } else { "" };
        self.line("links", format_args!("{nlink}, parent {parent}{own}"));
        let place = if is_inline { ", in the inode" } else { "" };
        let order = if is_launched {
            ", in the order of launches"
        } else {
            ""
        };
        let settled = if is_settled {
            ", compressed in the background"
        } else {
            ""
        };
        self.line(
            "size",
            format_args!("{size} bytes{place}{order}{settled}, {blocks} blocks"),
        );
        let Attributes {
            atime,
            mtime,
            ctime,
            btime,
            rdev,
            ..
        } = inode.attributes;
        for (name, at) in [
            ("accessed", atime),
            ("modified", mtime),
            ("changed", ctime),
            ("made", btime),
        ] {
            self.line(name, output::time(at));
        }
        if rdev.major != 0 || rdev.minor != 0 {
            self.line("device", format_args!("{}:{}", rdev.major, rdev.minor));
        }
        if kind == FileKind::Directory {
            self.line("names", inode.entries);
        }
        for (name, len) in &inode.xattrs {
            self.line(
                "attribute",
                format_args!("{}, {len} bytes", output::name(name)),
            );
        }
        for node in &inode.nodes {
            self.line("node", node_text(node));
        }
        for run in &inode.runs {
            self.line("content", run_text(run));
        }
        for fault in &inode.faults {
            self.line("unreadable", fault);
        }
    }

    fn block(&mut self, number: u64, place: &Place) {
        self.line("block", format_args!("{number}: {}", area_text(place.area)));
        if let Some((kind, state)) = place.segment {
            self.line("segment", format_args!("{}, {}", kind.name(), state.name()));
        }
        if let Some(is_valid) = place.is_valid {
            self.line("valid", if is_valid { "yes" } else { "no" });
        }
        if let (Some(Owner { ino, lblk }), Some((kind, _))) = (place.owner, place.segment) {
            let what = if kind.has_nodes() {
                "node"
            } else {
                "logical block"
            };
            let agrees = if place.is_owned == Some(true) {
                "which says so too"
            } else {
                "which lies elsewhere now"
            };
            self.line(
                "owner",
                format_args!("inode {ino}, {what} {lblk}, {agrees}"),
            );
        }
        match &place.content {
            Content::Zeros => self.line("content", "zeros"),
            Content::Node(header) => self.line("content", header_text(header)),
            Content::Packed(header, slots) => self.packed(header, slots),
            Content::Directory(0, names) => {
                self.line(
                    "content",
                    format_args!("a leaf of a directory, {} names", names.len()),
                );
                for (name, ino) in names {
                    self.below(format_args!("{}: inode {ino}", output::name(name)));
                }
            }
            Content::Directory(level, _) => self.line(
                "content",
                format_args!("an index of a directory, level {level}"),
            ),
            Content::Summary(owners) => {
                self.line(
                    "content",
                    format_args!("the summary of the segment, {} owners", owners.len()),
                );
            }
            Content::Bytes(bytes) => {
                let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.line("content", format_args!("begins with {}", hex.join(" ")));
            }
        }
    }

    fn packed(&mut self, header: &PackedHeader, slots: &[(Slot, Vec<u8>)]) {
        let PackedHeader {
            sequence,
            checkpoint,
            next_segment,
            lag,
            first,
            last,
            left,
        } = *header;
        let part = match (first, last) {
            (true, true) => "all",
            (true, false) => "the beginning",
            (false, true) => "the end",
            (false, false) => "a part",
        };
        self.line(
            "content",
            format_args!("{part} of group {sequence}, behind checkpoint {checkpoint}"),
        );
        self.line(
            "goes on",
            format_args!(
                "in segment {next_segment}; groups below {} were durable",
                sequence.saturating_sub(lag.into())
            ),
        );
        if left > 0 {
            self.line("launches", format_args!("want {left} blocks from here on"));
        }
        for (slot, bytes) in slots {
            match slot.kind {
                SlotKind::Records => {
                    self.line("slot", format_args!("{} bytes of records", slot.len))
                }
                SlotKind::Data => self.line(
                    "slot",
                    format_args!(
                        "{} bytes, inode {}, {} logical blocks from {}",
                        slot.len, slot.ino, slot.blocks, slot.lblk
                    ),
                ),
                SlotKind::Node => self.line(
                    "slot",
                    format_args!(
                        "{} bytes, node {} of inode {}",
                        slot.len, slot.lblk, slot.ino
                    ),
                ),
            }
            if slot.kind == SlotKind::Records && !first {
                self.below("records begin in the block before; --groups shows all of them");
            } else if slot.kind == SlotKind::Records {
                self.records(bytes, last);
            }
        }
    }

    /// Records in words; where they are not `whole`, the last one may be cut off.
    fn records(&mut self, stream: &[u8], whole: bool) {
        for record in records(stream) {
            match record {
                Ok(record) => self.below(record_text(&record)),
                Err(fault) if whole => self.below(fault),
                Err(_) => self.below("the last one goes on in the block behind"),
            }
        }
    }

    fn groups(&mut self, log: &Inspector, (groups, is_broken): &(Vec<Group>, bool)) {
        for group in groups {
            self.line(
                "group",
                format_args!(
                    "{}, {} bytes of records; those below {} were durable",
                    group.sequence,
                    group.stream.len(),
                    group.durable
                ),
            );
            self.records(&group.stream, true);
        }
        if *is_broken {
            self.line("group", "one more that has no end, which does not count");
        }
        match log.recovery() {
            Ok(found) if found.groups < groups.len() as u64 => {
                self.line(
                    "replayed",
                    format_args!(
                        "{} of {}: content of the next one is not there",
                        found.groups,
                        groups.len()
                    ),
                );
            }
            Ok(_) => self.line("replayed", format_args!("all {}", groups.len())),
            Err(error) => self.line("not mountable", error),
        }
    }
}
