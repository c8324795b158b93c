//! Setting right what is wrong with a log, as far as that takes no guess.
//!
//! First everything is looked at ([`survey`](crate::offline::survey)), and nothing is written. Then blocks that belong to
//! something are made valid, whatever the tables say of them, so that nothing that is written later can lie in their
//! places. Only then are names and counts corrected, in memory and in free segments, and a checkpoint makes that count:
//! until it is whole, the old one holds.
//!
//! What cannot be read is left as it is, and so is everything that might belong to it.
//!
//! Memory is bounded: half of [`Options::memory_bytes`] is for nodes and directories that are looked at, half for notes.

#![deny(clippy::indexing_slicing)]

use std::fmt::Display;
use std::sync::Arc;

use anteros_core::{Caller, FileKind, FsResult, Rdev, WritableDevice};

use crate::durable::owners;
use crate::durable::recover::{self, Patient, Recovery};
use crate::error::LogError;
use crate::files::dir::{Named, kind_of, type_of};
use crate::files::names::Birth;
use crate::layout::checkpoint::{Checkpoint, HeadKind};
use crate::layout::{ROOT, SEGMENT_CONTENT};
use crate::offline::check::check;
use crate::offline::survey::listing::{Found, Listing};
use crate::offline::survey::{Claim, Home, LOST, Name, Survey, Watched};
use crate::options::Options;
use crate::state::State;
use crate::store::space::Space;

/// Directory for inodes without a name.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Repairs that are told in words, and likewise of what is left.
const TOLD_MAX: usize = 10_000;

/// Result of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The first ten thousand repairs, in words.
    pub repairs: Vec<String>,
    /// All repairs.
    pub repair_count: u64,
    /// Faults that remain.
    pub left: Vec<String>,
    /// Groups that were rolled forward.
    pub recovery: Recovery,
}

/// Repairs the log on a device, of which nobody else makes use. A log without faults is not changed.
///
/// # Errors
///
/// When the device fails, when neither checkpoint is whole, when a group behind it cannot be replayed or the root
/// cannot be read. Nothing has changed then, or what has is part of the log that was there before.
pub fn repair(device: Arc<dyn WritableDevice>, options: Options) -> Result<Repaired, LogError> {
    mend(device, options, false)
}

/// As [`repair`]; but where the newest checkpoint has been damaged, what the one before says is repaired. Since
/// then, content of files may have been overwritten by that of others, and nobody can tell where.
///
/// # Errors
///
/// As those of [`repair`].
pub fn repair_going_back(
    device: Arc<dyn WritableDevice>,
    options: Options,
) -> Result<Repaired, LogError> {
    mend(device, options, true)
}

fn mend(
    device: Arc<dyn WritableDevice>,
    options: Options,
    goes_back: bool,
) -> Result<Repaired, LogError> {
    if let Ok(report) = check(device.clone(), options.clone()) {
        if report.fault_count == 0 {
            return Ok(Repaired {
                recovery: report.recovery,
                ..Repaired::default()
            });
        }
    }
    let memory = options.memory_bytes / 2;
    let options = Options {
        memory_bytes: memory,
        ..options
    };
    let Patient {
        mut state,
        checkpoint,
        recovery,
        faults,
    } = recover::open_to_repair(device, options, goes_back)?;
    state.live(ROOT)?;
    let told = Repaired {
        recovery,
        left: state.take_warnings(),
        ..Repaired::default()
    };
    let mut mender = Mender {
        state,
        checkpoint,
        told,
        memory,
    };
    for fault in &faults {
        mender.tell_of(fault.to_string());
    }
    if mender.checkpoint.superseded {
        let text = "counts again: a newer one is damaged, and content that was written since may be lost or mixed up";
        let version = mender.checkpoint.version;
        mender.tell(format_args!("checkpoint {version}"), text);
    }
    let mut survey = mender.survey()?;
    for warning in mender.state.take_warnings() {
        mender.tell_of(warning);
    }
    mender.state.take_room_to_repair()?;
    mender.settle_blocks(&mut survey)?;
    mender.state.store.allow_writes();
    mender.write_summaries(&survey);
    mender.mend_inodes(&mut survey)?;
    mender.mend_directories(&survey)?;
    mender.house_lost(&survey)?;
    mender.told.left.extend(survey.unreadable);
    mender.state.checkpoint(true)?;
    mender
        .told
        .left
        .extend(mender.state.nodes.nat().unwritten());
    Ok(mender.told)
}

struct Mender {
    state: State,
    checkpoint: Checkpoint,
    told: Repaired,
    /// Bytes that notes may take.
    memory: usize,
}

impl Mender {
    fn tell(&mut self, place: impl Display, what: impl Display) {
        self.tell_of(format!("{place}: {what}"));
    }

    fn tell_of(&mut self, repair: String) {
        self.told.repair_count += 1;
        if self.told.repairs.len() < TOLD_MAX {
            self.told.repairs.push(repair);
        }
    }

    /// Looks at everything, until no block has two owners of which one can be told to be the right one.
    fn survey(&mut self) -> Result<Survey, LogError> {
        let mut watched = Watched::default();
        loop {
            let mut survey =
                Survey::take(&mut self.state, &self.checkpoint, &watched, self.memory)?;
            let is_known = survey.shared.is_subset(&watched.blocks)
                && survey.unsummarized.is_subset(&watched.segments);
            if !is_known {
                watched.blocks = survey.shared;
                watched.segments.extend(survey.unsummarized);
            } else if !self.separate(&survey)? {
                for block in std::mem::take(&mut survey.shared) {
                    let text = "belongs to more than one, and nothing says to which";
                    self.told.left.push(format!("block {block}: {text}"));
                }
                return Ok(survey);
            }
        }
    }

    /// Takes blocks away from those who claim them and are not their owners; says whether there was one.
    fn separate(&mut self, survey: &Survey) -> FsResult<bool> {
        let mut is_changed = false;
        for block in &survey.shared {
            let claims = survey.claims.get(block).map_or(&[][..], Vec::as_slice);
            let Some(winner) = self.rightful(*block, claims) else {
                continue;
            };
            for claim in claims
                .iter()
                .filter(|&&claim| claim != winner && !claim.is_node)
            {
                let (ino, lblk) = (claim.owner.ino, claim.owner.lblk);
                let (segment, index) = self.state.store.segments().locate(*block);
                let was_valid = self.state.store.segments().segment(segment).is_valid(index);
                self.state.clear_pointers(ino, lblk..lblk + 1)?;
                if was_valid {
                    self.state.store.mark(*block);
                }
                let place = format!("inode {ino}, logical block {lblk}");
                let of = winner.owner.ino;
                self.tell(place, format_args!("was in block {block}, which is inode {of}'s: it is lost, and reads as zeros"));
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Rightful owner of a block: by the node itself, else by the summary.
    fn rightful(&self, block: u64, claims: &[Claim]) -> Option<Claim> {
        let node = claims.iter().find(|claim| claim.is_node);
        node.copied().or_else(|| {
            let owner = owners::of(&self.state, Some(&self.checkpoint), block)?;
            claims.iter().find(|claim| claim.owner == owner).copied()
        })
    }

    /// Makes exactly those blocks valid that belong to something, and counts again.
    fn settle_blocks(&mut self, survey: &mut Survey) -> FsResult<()> {
        let seconds = self.state.store.seconds();
        let mut kept = 0;
        for segment in 0..self.state.store.segments().count() {
            let start = self.state.store.segments().start(segment);
            let entry = self.state.store.segments().segment(segment).clone();
            let (mut freed, mut marked, mut slots) = (0, 0, 0);
            for index in 0..SEGMENT_CONTENT as u16 {
                let block = start + u64::from(index);
                slots += self.settle_slots(survey, block)?;
                match (survey.used.get(segment, index), entry.is_valid(index)) {
                    (true, false) => {
                        self.state.store.segments_mut().keep(segment);
                        self.state.store.segments_mut().mark(block, seconds);
                        marked += 1;
                    }
                    (false, true) if survey.is_whole() => {
                        self.state.store.segments_mut().invalidate(block, seconds);
                        freed += 1;
                    }
                    (false, true) => kept += 1,
                    _ => {}
                }
            }
            let place = format!("segment {segment}");
            if freed > 0 {
                self.tell(
                    &place,
                    format_args!("{freed} valid blocks belonged to nothing, and are free"),
                );
            }
            if slots > 0 {
                self.tell(&place, format_args!("{slots} slots were counted as valid that belong to nothing, or the other way round"));
            }
            if marked > 0 {
                self.tell(&place, format_args!("{marked} blocks are in use and were not counted as valid: what they hold may be old"));
            }
        }
        if kept > 0 {
            self.told.left.push(format!(
                "{kept} valid blocks belong to nothing that can be read"
            ));
        }
        self.recount(survey, kept);
        Ok(())
    }

    /// Makes exactly those slots of a block valid that belong to something, and says how many were not, or were.
    fn settle_slots(&mut self, survey: &mut Survey, block: u64) -> FsResult<u32> {
        let stated = self.state.store.slots().valid(block);
        let mut valid = u32::from_le_bytes(survey.slots.get(block)?);
        if !survey.is_whole() {
            valid |= stated;
        }
        if valid != stated {
            self.state.store.slots_mut().set(block, valid);
        }
        Ok((valid ^ stated).count_ones())
    }

    fn recount(&mut self, survey: &Survey, kept: u64) {
        let stated = self.state.store.space().preallocated();
        let preallocated = if survey.is_whole() {
            survey.preallocated
        } else {
            survey.preallocated.max(stated)
        };
        let counts = [
            (
                "nodes",
                self.state.nodes.nat().used().into(),
                survey.nodes_stated.into(),
            ),
            (
                "inodes",
                self.state.nodes.inode_count().into(),
                u64::from(survey.inodes),
            ),
            ("preallocated blocks", stated, preallocated),
        ];
        for (what, stated, counted) in counts {
            if stated != counted {
                self.tell(
                    "checkpoint",
                    format_args!("{stated} {what}, but there are {counted}"),
                );
            }
        }
        self.state.nodes.recount(survey.nodes_stated, survey.inodes);
        // Whatever is repaired may take some of what is kept in reserve.
        let room = self.state.store.superblock().content_blocks();
        let space = Space::new(room, survey.blocks_taken + kept, preallocated);
        self.state.store.recount_space(space);
    }

    /// Writes the summaries that are missing, or that do not name the owners.
    fn write_summaries(&mut self, survey: &Survey) {
        let was_settled = self.told.recovery.was_clean && self.told.recovery.groups == 0;
        for segment in &survey.unsummarized {
            let Some(owners) = survey.owners.get(segment) else {
                continue;
            };
            let place = format!("segment {segment}");
            if owners.has_nodes && owners.has_data {
                let text = "holds nodes and content, and cannot be cleaned";
                self.told.left.push(format!("{place}: {text}"));
            }
            let entry = self.state.store.segments().segment(*segment);
            let kind =
                HeadKind::from_raw(entry.kind).filter(|kind| kind.has_nodes() == owners.has_nodes);
            let kind = kind.unwrap_or(if owners.has_nodes {
                HeadKind::WarmNode
            } else {
                HeadKind::WarmData
            });
            let summary = self
                .state
                .store
                .segments_mut()
                .adopt(*segment, kind, &owners.owners);
            let at = self.state.store.segments().start(*segment) + u64::from(SEGMENT_CONTENT);
            self.state.store.push(at, summary);
            let was_open = self
                .checkpoint
                .heads
                .iter()
                .any(|head| head.segment == *segment);
            if was_settled && !was_open {
                self.tell(
                    place,
                    "its summary was broken or named others than the owners, and is written anew",
                );
            }
        }
    }

    fn mend_inodes(&mut self, survey: &mut Survey) -> FsResult<()> {
        for &nid in &survey.stray {
            self.state.nodes.free_stray(nid)?;
            self.tell(
                format_args!("node {nid}"),
                "was in use and belonged to nothing; the number is free",
            );
        }
        for (&ino, fault) in &survey.bare {
            self.state.lose_xattrs(ino)?;
            self.tell(
                format_args!("inode {ino}"),
                format_args!("its extended attributes are lost: {fault}"),
            );
            self.relieve()?;
        }
        for (&ino, &counted) in &survey.blocks {
            let attributes = self.state.live(ino)?.attributes();
            let stated = std::mem::replace(&mut attributes.blocks, counted);
            self.tell(
                format_args!("inode {ino}"),
                format_args!("said that it takes {stated} blocks, but takes {counted}"),
            );
            self.relieve()?;
        }
        for &(ino, lblk) in &survey.beyond {
            self.state.clear_pointers(ino, lblk..lblk + 1)?;
            self.tell(
                format_args!("inode {ino}"),
                format_args!("had a block {lblk} behind its end, which nobody can read"),
            );
            self.relieve()?;
        }
        for (&ino, &counted) in &survey.entries {
            let live = self.state.live(ino)?;
            let stated = std::mem::replace(&mut live.inode_mut().entries, counted);
            self.tell(
                format_args!("directory {ino}"),
                format_args!("said that it has {stated} names, but has {counted}"),
            );
            self.relieve()?;
        }
        self.mend_links(survey)
    }

    fn mend_links(&mut self, survey: &mut Survey) -> FsResult<()> {
        let mut below = survey.below()?;
        let mut at = 0;
        while let Some((index, names)) = survey.names.next(at)? {
            at = index + 1;
            let Ok(ino) = u32::try_from(index) else { break };
            let is_directory = self.state.live(ino)?.kind() == FileKind::Directory;
            let counted = match is_directory {
                true => u32::from_le_bytes(below.get(index)?).saturating_add(2),
                false => u32::from_le_bytes(names),
            };
            let stated = self.state.live(ino)?.inode().attributes.nlink;
            if stated != counted {
                self.state.live(ino)?.attributes().nlink = counted;
                self.tell(
                    format_args!("inode {ino}"),
                    format_args!("said that it has {stated} links, but has {counted}"),
                );
            }
            self.relieve()?;
        }
        self.mend_homes(survey)
    }

    fn mend_homes(&mut self, survey: &mut Survey) -> FsResult<()> {
        let mut at = 0;
        while let Some((ino, Home { parent, .. })) = survey.homes.next(at)? {
            at = ino + 1;
            if parent == LOST {
                continue;
            }
            let stated = self.state.live(ino)?.inode().attributes.parent;
            if stated != parent {
                self.state.live(ino)?.attributes().parent = parent;
                self.tell(
                    format_args!("directory {ino}"),
                    format_args!("said that it lies in directory {stated}, but lies in {parent}"),
                );
            }
            self.relieve()?;
        }
        Ok(())
    }

    fn mend_directories(&mut self, survey: &Survey) -> Result<(), LogError> {
        for (&ino, fault) in &survey.scattered {
            let kept = self.gather(ino)?;
            self.tell(
                format_args!("directory {ino}"),
                format_args!("{fault}: its {kept} names that can be read are written anew"),
            );
        }
        let is_torn = |name: &&Name| survey.torn.contains(&name.parent);
        let (misnamed, dangling, second) = (&survey.misnamed, &survey.dangling, &survey.second);
        for name in misnamed
            .iter()
            .chain(dangling)
            .chain(second)
            .filter(is_torn)
        {
            let text = "names something that is not there, has another name or is of another kind";
            self.told.left.push(format!("{}: {text}", name.place()));
        }
        for name in misnamed.iter().filter(|name| !is_torn(name)) {
            self.state
                .replace_name(name.parent, &name.name, name.named)?;
            let kind = kind_of(name.named.kind).name();
            self.tell(
                name.place(),
                format_args!("inode {} is a {kind}, and is named so now", name.named.ino),
            );
            self.relieve()?;
        }
        for name in dangling.iter().filter(|name| !is_torn(name)) {
            self.state.remove_name(name.parent, &name.name)?;
            self.tell(
                name.place(),
                format_args!("inode {} is not there: the name is removed", name.named.ino),
            );
            self.relieve()?;
        }
        for name in second.iter().filter(|name| !is_torn(name)) {
            self.state.remove_name(name.parent, &name.name)?;
            self.tell(
                name.place(),
                format_args!(
                    "directory {} has another name: this one is removed",
                    name.named.ino
                ),
            );
            self.relieve()?;
        }
        Ok(())
    }

    /// Puts the names of a directory into new blocks, and says how many they are.
    fn gather(&mut self, ino: u32) -> Result<usize, LogError> {
        let mut names = Vec::new();
        Listing::of(&mut self.state, ino, usize::MAX / 4)?.visit(
            &mut self.state,
            &mut |_, found| {
                names.push(found);
                Ok(())
            },
        )?;
        self.state.drop_content(ino)?;
        let live = self.state.live(ino)?;
        live.inode_mut().inline.clear();
        live.inode_mut().entries = 0;
        let attributes = live.attributes();
        attributes.is_inline = true;
        attributes.size = 0;
        for Found { name, named, .. } in &names {
            self.state.add_name(ino, name, *named)?;
        }
        self.relieve()?;
        Ok(names.len())
    }

    /// Gives names to what has none.
    fn house_lost(&mut self, survey: &Survey) -> FsResult<()> {
        if survey.lost.is_empty() {
            return Ok(());
        }
        let home = match self.state.find(ROOT, LOST_AND_FOUND)? {
            Some(named) => named.ino,
            None => self.make_home()?,
        };
        if self.state.live(home)?.kind() != FileKind::Directory {
            let count = survey.lost.len();
            let text = "no name leads to them, and /lost+found is no directory";
            self.told.left.push(format!("{count} inodes: {text}"));
            return Ok(());
        }
        for &ino in &survey.lost {
            let mut name = format!("#{ino}");
            while self.state.find(home, name.as_bytes())?.is_some() {
                name.push('+');
            }
            let kind = self.state.live(ino)?.kind();
            self.state.add_name(
                home,
                name.as_bytes(),
                Named {
                    ino,
                    kind: type_of(kind),
                },
            )?;
            self.state.live(ino)?.attributes().parent = home;
            if kind == FileKind::Directory {
                self.state.live(home)?.attributes().nlink += 1;
            }
            self.tell(
                format_args!("inode {ino}"),
                format_args!("no name led to it; it is /lost+found/{name} now"),
            );
            self.relieve()?;
        }
        Ok(())
    }

    fn make_home(&mut self) -> FsResult<u32> {
        let birth = Birth {
            kind: FileKind::Directory,
            perm: 0o700,
            caller: Caller::default(),
            rdev: Rdev::default(),
            target: b"",
            xattrs: Vec::new(),
        };
        self.state.make(ROOT, LOST_AND_FOUND, &birth)
    }

    /// Writes what memory, or the free segments, have no room for. What has been repaired so far is better than what was.
    fn relieve(&mut self) -> FsResult<()> {
        if self.state.store.dirty_blocks() > self.state.store.dirty_max() {
            self.state.checkpoint(false)?;
        }
        self.state.shrink();
        Ok(())
    }
}
