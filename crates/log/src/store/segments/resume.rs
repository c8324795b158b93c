//! Heads of a log after a crash: where they go on, and which segments they leave.

use crate::layout::checkpoint::{Head, HeadKind};
use crate::layout::summary::{self, Owner};
use crate::layout::{Block, Corrupt, SEGMENT_CONTENT};
use crate::store::segments::{OpenHead, Place, Segments, Use};

impl Segments {
    /// Goes on where a checkpoint left the heads.
    ///
    /// # Errors
    ///
    /// When a head stands in a segment that another one fills, or its valid blocks lie beyond it.
    pub(crate) fn open_heads(
        &mut self,
        heads: &[Head],
        owners: &[Vec<Owner>],
    ) -> Result<(), Corrupt> {
        for (head, owners) in heads.iter().zip(owners) {
            let fault = |rule| Corrupt::Head {
                kind: head.kind as u8,
                segment: head.segment,
                rule,
            };
            let next = head.next_segment;
            if u32::from(head.next) >= SEGMENT_CONTENT {
                return Err(fault("the segment is full"));
            }
            if head.kind == HeadKind::Packed && next.is_none() {
                return Err(fault("the packed log does not say where it goes on"));
            }
            for segment in [Some(head.segment), next].into_iter().flatten() {
                if self.segment(segment).state == Use::Open {
                    return Err(fault("another head fills the segment"));
                }
            }
            let last = self.segment(head.segment).valid_blocks().last();
            if !head.threaded && last.is_some_and(|last| last >= head.next) {
                return Err(fault("a block that was not yet written is valid"));
            }
            if head.threaded && !self.segment(head.segment).has_plain_data() {
                return Err(fault(
                    "holes are filled of a segment that has no plain content",
                ));
            }
            if head.threaded && self.next_hole(head.segment, head.next).is_none() {
                return Err(fault("the segment has no hole left"));
            }
            if next.is_some_and(|next| self.segment(next).valid > 0) {
                return Err(fault("the log goes on in a segment that is in use"));
            }
            self.claim(head.segment);
            next.into_iter().for_each(|next| self.claim(next));
            self.heads[head.kind] = Some(OpenHead {
                segment: head.segment,
                next: head.next,
                owners: owners.clone(),
                next_segment: next,
                threaded: head.threaded,
            });
        }
        Ok(())
    }

    /// Takes over a segment that was opened after the checkpoint, of whose blocks groups know: its summary.
    pub(crate) fn adopt(&mut self, segment: u32, kind: HeadKind, owners: &[Owner]) -> Box<Block> {
        summary::encode(self.renew(segment, kind), owners)
    }

    /// A segment turns out to hold packed blocks, or others, as this kind does: it was opened after the checkpoint.
    pub(crate) fn holds(&mut self, segment: u32, kind: HeadKind) {
        let entry = self.segment_mut(segment);
        if entry.is_packed() != kind.is_packed() {
            entry.kind = kind.to_raw();
            self.note_changed(segment);
        }
    }

    /// Has the heads but that of the packed log go on after a crash, behind the blocks of their segments that groups name:
    /// of each, that many from its beginning are `reached`. `owner` tells whose the blocks are that groups name. The summaries of
    /// the segments that are full, and where they belong.
    pub(crate) fn go_on(
        &mut self,
        reached: impl Fn(u32) -> u16,
        owner: impl Fn(u64) -> Option<Owner>,
    ) -> Vec<(u64, Box<Block>)> {
        let mut summaries = Vec::new();
        for kind in HeadKind::ALL {
            let head = &mut self.heads[kind];
            let Some(mut head) = head.take_if(|_| kind != HeadKind::Packed) else {
                continue;
            };
            let start = self.start(head.segment);
            head.next = head.next.max(reached(head.segment));
            let known = head.owners.len().max(head.next.into());
            head.owners.resize(known, Owner::default());
            head.learn(|index| owner(start + u64::from(index)));
            let is_packed = self.segment(head.segment).is_packed();
            if is_packed == kind.is_packed() && self.has_room(&head) {
                self.heads[kind] = Some(head);
            } else {
                summaries.extend(self.seal(head));
            }
        }
        summaries
    }

    /// Has a head go on after a crash in a segment that was opened behind the checkpoint, of whose first blocks these are the
    /// owners. Says whether it does: it may be open elsewhere, or something stands in the way.
    pub(crate) fn go_on_in(
        &mut self,
        segment: u32,
        kind: HeadKind,
        owners: &[Owner],
        next_segment: Option<u32>,
    ) -> bool {
        let next = owners.len() as u16;
        let goes_on = self.heads[kind].is_none()
            && u32::from(next) < SEGMENT_CONTENT
            && self.is_left(segment, next, kind);
        if goes_on {
            self.reopen(segment, kind);
            self.heads[kind] = Some(OpenHead {
                segment,
                next,
                owners: owners.to_vec(),
                next_segment,
                threaded: false,
            });
        }
        goes_on
    }

    /// Has the packed log go on after a crash, behind its last group. Where something stands in the way, it begins anew.
    pub(crate) fn go_on_packed(&mut self, end: &Place) {
        const KIND: HeadKind = HeadKind::Packed;
        self.close_packed();
        let next = end.next.filter(|&next| self.is_left(next, 0, KIND));
        let Some(next) = next.filter(|_| self.is_left(end.segment, end.index, KIND)) else {
            return;
        };
        self.reopen(next, KIND);
        let owners = vec![Owner::default(); end.index.into()];
        let goes_on = self.go_on_in(end.segment, KIND, &owners, Some(next));
        self.next_packed = (!goes_on).then_some(next);
    }

    /// Returns whether no head stands in a segment, and this one may fill it from that block on.
    pub(super) fn is_left(&self, segment: u32, index: u16, kind: HeadKind) -> bool {
        let entry = self.segment(segment);
        let is_same = entry.is_packed() == kind.is_packed();
        let last = entry.valid_blocks().last();
        entry.state != Use::Open && last.is_none_or(|last| last < index && is_same)
    }

    /// Opens a segment in which a head goes on, or will.
    pub(super) fn reopen(&mut self, segment: u32, kind: HeadKind) {
        self.claim(segment);
        self.prefree.remove(&segment);
        self.renew(segment, kind);
    }

    /// Gives a segment to a head of this kind, with the next serial number, which is returned.
    pub(super) fn renew(&mut self, segment: u32, kind: HeadKind) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let entry = self.segment_mut(segment);
        entry.kind = kind as u8;
        entry.serial = serial;
        self.note_changed(segment);
        serial
    }

    /// Closes the segment of the packed log, and the one where it would go on: it begins anew elsewhere.
    pub(crate) fn close_packed(&mut self) {
        let Some(head) = self.heads[HeadKind::Packed].take() else {
            return;
        };
        let next = head.next_segment;
        self.seal(head);
        if let Some(next) = next {
            self.segment_mut(next).state = Use::Full;
            self.note_prefree(next);
        }
    }

    /// Closes all heads. The summaries, and where they belong.
    pub(crate) fn close_heads(&mut self) -> Vec<(u64, Box<Block>)> {
        self.close_packed();
        let heads = std::mem::take(&mut self.heads);
        let open = heads.into_values().flatten();
        open.filter_map(|head| self.seal(head)).collect()
    }
}
