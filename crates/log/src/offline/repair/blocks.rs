//! Blocks and slots of a log: what belongs to something is valid, and summaries name the owners.

use anteros_core::FsResult;

use super::Mender;
use super::survey::Survey;
use crate::layout::SEGMENT_CONTENT;
use crate::layout::checkpoint::HeadKind;
use crate::store::space::Space;

impl Mender {
    /// Makes exactly those blocks valid that belong to something, and counts again.
    pub(super) fn settle_blocks(&mut self, survey: &mut Survey) -> FsResult<()> {
        let seconds = self.state.store.seconds();
        let mut kept = 0;
        for segment in 0..self.state.store.segments().count() {
            let start = self.state.store.segments().start(segment);
            let entry = self.state.store.segments().segment(segment).clone();
            let (mut freed, mut marked, mut slots) = (0, 0, 0);
            for index in 0..SEGMENT_CONTENT as u16 {
                let block = start + u64::from(index);
                slots += self.settle_slots(survey, block)?;
                match (
                    survey.damage.used.get(segment, index),
                    entry.is_valid(index),
                ) {
                    (true, false) => {
                        self.state.store.segments_mut().keep(segment);
                        self.state.store.segments_mut().mark(block, seconds);
                        marked += 1;
                    }
                    (false, true) if survey.damage.is_whole() => {
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
            self.repaired.left.push(format!(
                "{kept} valid blocks belong to nothing that can be read"
            ));
        }
        self.recount(survey, kept);
        Ok(())
    }

    /// Makes exactly those slots of a block valid that belong to something, and says how many were not, or were.
    fn settle_slots(&mut self, survey: &mut Survey, block: u64) -> FsResult<u32> {
        let stated = self.state.store.bst().valid(block);
        let mut valid = u32::from_le_bytes(survey.damage.slots.get(block)?);
        if !survey.damage.is_whole() {
            valid |= stated;
        }
        if valid != stated {
            self.state.store.correct_slots(block, valid);
        }
        Ok((valid ^ stated).count_ones())
    }

    fn recount(&mut self, survey: &Survey, kept: u64) {
        let stated = self.state.store.space().preallocated();
        let preallocated = if survey.damage.is_whole() {
            survey.preallocated
        } else {
            survey.preallocated.max(stated)
        };
        let counts = [
            (
                "nodes",
                self.state.nodes.nat().used().into(),
                survey.nodes.into(),
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
        self.state.nodes.recount(survey.nodes, survey.inodes);
        // Whatever is repaired may take some of what is kept in reserve.
        let room = self.state.store.superblock().content_blocks();
        let space = Space::new(room, survey.blocks + kept, preallocated);
        self.state.store.recount_space(space);
    }

    /// Writes the summaries that are missing, or that do not name the owners.
    pub(super) fn write_summaries(&mut self, survey: &Survey) {
        let was_settled = self.repaired.recovery.was_clean && self.repaired.recovery.groups == 0;
        for (segment, owners) in &survey.damage.unsummarized {
            let place = format!("segment {segment}");
            let has_plain = owners.has_nodes || owners.has_data;
            let mixed = match (
                owners.has_nodes && owners.has_data,
                has_plain && owners.has_slots,
            ) {
                (true, _) => Some("nodes and content"),
                (false, true) => Some("packed blocks and others"),
                (false, false) => None,
            };
            if let Some(what) = mixed {
                let text = format!("{place}: holds {what}, and cannot be cleaned");
                self.repaired.left.push(text);
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
}
