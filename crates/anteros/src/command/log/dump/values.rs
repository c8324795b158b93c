//! `anteros log dump --json`: the same as values, for scripts.

use anteros_core::{FileKind, Timestamp};
use anteros_log::layout::checkpoint::{Checkpoint, Head};
use anteros_log::layout::node::{Attributes, NodeHeader, NodeKind};
use anteros_log::layout::packed::{PackedHeader, Slot, SlotKind};
use anteros_log::layout::pointer::Pointer;
use anteros_log::layout::record::{Record, records};
use anteros_log::layout::summary::Owner;
use anteros_log::layout::{Corrupt, Superblock};
use anteros_log::{Area, Content, Group, InodeView, Inspector, NodeView, Place, Run};
use serde_json::{Map, Value, json};

use crate::output;

/// Holds what was asked for, by its name.
#[derive(Default)]
pub(super) struct Values(Map<String, Value>);

impl Values {
    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    pub(super) fn superblocks(&mut self, log: &Inspector) {
        let counts = log.superblock();
        let copies = log.superblocks().iter().map(|copy| match copy {
            Ok(copy) => json!({ "generation": copy.generation, "counts": copy == counts }),
            Err(fault) => json!({ "counts": false, "fault": fault.to_string() }),
        });
        let copies = copies.collect();
        self.put("superblocks", copies);
        self.put("superblock", superblock(counts));
    }

    pub(super) fn checkpoints(&mut self, log: &Inspector) {
        let newest = log.newest();
        let packs = log.packs().iter().map(|pack| match pack {
            Ok(pack) => json!({
                "version": pack.version,
                "counts": newest.is_some_and(|newest| newest.version == pack.version),
                "superseded": pack.superseded,
            }),
            Err(fault) => json!({ "counts": false, "fault": fault.to_string() }),
        });
        let packs = packs.collect();
        self.put("packs", packs);
        self.put("checkpoint", newest.map_or(Value::Null, checkpoint));
        self.recovery(log);
    }

    fn recovery(&mut self, log: &Inspector) {
        let told = match log.recovery() {
            Ok(found) => json!({
                "mountable": true,
                "was_clean": found.was_clean,
                "groups_to_replay": found.groups,
                "dropped": found.dropped,
            }),
            Err(error) => json!({ "mountable": false, "fault": error.to_string() }),
        };
        self.put("recovery", told);
    }

    pub(super) fn inode(&mut self, inode: &InodeView) {
        let mut told = attributes(&inode.attributes);
        told["ino"] = json!(inode.ino);
        if inode.attributes.kind == FileKind::Directory {
            told["names"] = json!(inode.entries);
        }
        let xattrs = inode.xattrs.iter();
        told["xattrs"] = xattrs
            .map(|(name, len)| json!({ "name": output::name(name).to_string(), "bytes": len }))
            .collect();
        told["nodes"] = inode.nodes.iter().map(node).collect();
        told["content"] = inode.runs.iter().map(run).collect();
        told["faults"] = json!(inode.faults);
        self.put("inode", told);
    }

    pub(super) fn block(&mut self, number: u64, place: &Place) {
        let mut told = area(place.area);
        told["block"] = json!(number);
        if let Some((kind, state)) = place.segment {
            told["kind"] = json!(kind.name());
            told["state"] = json!(state.name());
        }
        told["valid"] = json!(place.is_valid);
        if let (Some(owner), Some((kind, _))) = (place.owner, place.segment) {
            told["owner"] = self::owner(owner, kind.has_nodes());
            told["owner"]["agrees"] = json!(place.is_owned);
        }
        told["content"] = content(&place.content);
        self.put("block", told);
    }

    pub(super) fn groups(&mut self, log: &Inspector, groups: &[Group], is_broken: bool) {
        let told = groups.iter().map(|group| {
            json!({
                "sequence": group.sequence,
                "durable_below": group.durable,
                "record_bytes": group.stream.len(),
                "records": stream(&group.stream),
            })
        });
        let told = told.collect();
        self.put("groups", told);
        self.put("one_more_without_an_end", json!(is_broken));
        self.recovery(log);
    }
}

fn superblock(superblock: &Superblock) -> Value {
    let table = |start: u64, blocks: u32| json!({ "block": start, "copies": 2, "blocks": blocks });
    json!({
        "generation": superblock.generation,
        "label": superblock.label,
        "uuid": output::uuid(&superblock.uuid),
        "incompat": superblock.incompat,
        "ro_compat": superblock.ro_compat,
        "compat": superblock.compat,
        "blocks": superblock.blocks,
        "packs": table(superblock.checkpoint_start, superblock.checkpoint_blocks),
        "segment_table": table(superblock.sit_start, superblock.sit_blocks),
        "block_states": table(superblock.bst_start, superblock.bst_blocks),
        "node_addresses": table(superblock.nat_start, superblock.nat_blocks),
        "node_numbers": superblock.nids,
        "main_block": superblock.main_start,
        "segments": superblock.segments,
        "reserved_segments": superblock.reserved_segments,
        "segments_per_section": superblock.segments_per_section,
        "sections_per_zone": superblock.sections_per_zone,
        "slots_max": superblock.slots_max,
    })
}

fn checkpoint(pack: &Checkpoint) -> Value {
    json!({
        "version": pack.version,
        "clean": pack.clean,
        "superseded": pack.superseded,
        "time": time(pack.time),
        "valid_blocks": pack.used_blocks,
        "preallocated_blocks": pack.reserved_blocks,
        "inodes": pack.inodes,
        "nodes": pack.nodes,
        "next_nid": pack.next_nid,
        "next_group": pack.next_sequence,
        "serial": pack.serial,
        "record_inode": pack.record_ino,
        "journals": {
            "nodes": pack.nat_journal.len(),
            "segments": pack.sit_journal.len(),
            "blocks": pack.bst_journal.len(),
        },
        "orphans": pack.orphans,
        "orphans_left_out": pack.orphans_left_out,
        "summaries_of": pack.rewritten.iter().map(|(segment, _)| *segment).collect::<Vec<_>>(),
        "heads": pack.heads.iter().map(head).collect::<Value>(),
    })
}

fn head(head: &Head) -> Value {
    json!({
        "kind": head.kind.name(),
        "segment": head.segment,
        "next": head.next,
        "serial": head.serial,
        "threaded": head.threaded,
        "next_segment": head.next_segment,
    })
}

fn time(at: Timestamp) -> Value {
    json!({ "seconds": at.secs, "nanoseconds": at.nanos })
}

fn attributes(attributes: &Attributes) -> Value {
    json!({
        "kind": attributes.kind.name(),
        "mode": attributes.perm,
        "inline": attributes.is_inline,
        "launched": attributes.is_launched,
        "settled": attributes.is_settled,
        "own": attributes.is_own,
        "nlink": attributes.nlink,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "size": attributes.size,
        "blocks": attributes.blocks,
        "atime": time(attributes.atime),
        "mtime": time(attributes.mtime),
        "ctime": time(attributes.ctime),
        "btime": time(attributes.btime),
        "generation": attributes.generation,
        "parent": attributes.parent,
        "rdev": [attributes.rdev.major, attributes.rdev.minor],
    })
}

fn node(node: &NodeView) -> Value {
    let (kind, position) = node.place.unzip();
    json!({
        "nid": node.nid,
        "block": node.block,
        "slot": node.slot,
        "kind": kind.map(node_kind),
        "position": position,
    })
}

const fn node_kind(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Inode => "inode",
        NodeKind::Direct => "direct",
        NodeKind::Indirect => "indirect",
        NodeKind::Attributes => "attributes",
    }
}

fn run(run: &Run) -> Value {
    let mut told = pointer(run.pointer);
    told["lblk"] = json!(run.lblk);
    told["count"] = json!(run.count);
    told
}

fn pointer(pointer: Pointer) -> Value {
    match pointer {
        Pointer::Hole => json!({ "kind": "hole" }),
        Pointer::Preallocated => json!({ "kind": "preallocated" }),
        Pointer::Plain(block, _) => json!({ "kind": "plain", "block": block }),
        Pointer::Packed(at) => json!({
            "kind": "packed",
            "block": at.block,
            "slot": at.slot,
            "sequence": at.sequence,
            "behind": at.behind,
        }),
    }
}

fn area(area: Area) -> Value {
    match area {
        Area::Superblock(copy) => json!({ "area": "superblock", "copy": copy }),
        Area::Checkpoint { pack, index } => {
            json!({ "area": "checkpoint", "pack": pack, "index": index })
        }
        Area::Table {
            name,
            copy,
            index,
            counts,
        } => json!({ "area": name, "copy": copy, "index": index, "counts": counts }),
        Area::Main { segment, index } => {
            json!({ "area": "main", "segment": segment, "index": index })
        }
        Area::Unused => json!({ "area": "unused" }),
    }
}

fn owner(Owner { ino, lblk }: Owner, has_nodes: bool) -> Value {
    let place = if has_nodes { "nid" } else { "lblk" };
    json!({ "ino": ino, place: lblk })
}

fn content(content: &Content) -> Value {
    match content {
        Content::Zeros => json!({ "kind": "zeros" }),
        Content::Node(header) => node_header(header),
        Content::Packed(header, slots) => packed(header, slots),
        Content::Directory(level, names) => {
            let names = names.iter();
            let names: Value = names
                .map(|(name, ino)| json!({ "name": output::name(name).to_string(), "ino": ino }))
                .collect();
            json!({ "kind": "directory", "level": level, "names": names })
        }
        Content::Summary(owners) => {
            let owners = owners.iter();
            let owners: Value = owners.map(|owner| json!([owner.ino, owner.lblk])).collect();
            json!({ "kind": "summary", "owners": owners })
        }
        Content::Bytes(bytes) => json!({ "kind": "bytes", "begins_with": bytes }),
    }
}

fn node_header(header: &NodeHeader) -> Value {
    json!({
        "kind": "node",
        "nid": header.nid,
        "ino": header.ino,
        "node": node_kind(header.kind),
        "position": header.position,
        "before_checkpoint": header.version,
    })
}

fn packed(header: &PackedHeader, slots: &[(Slot, Vec<u8>)]) -> Value {
    let slots = slots.iter().map(|(slot, bytes)| {
        let mut told = self::slot(slot);
        // Where they began in the block before, it is not known where one begins.
        if slot.kind == SlotKind::Records && header.first {
            told["records"] = stream(bytes);
        }
        told
    });
    json!({
        "kind": "packed",
        "group": header.sequence,
        "behind_checkpoint": header.checkpoint,
        "first": header.first,
        "last": header.last,
        "next_segment": header.next_segment,
        "durable_below": header.sequence.saturating_sub(header.lag.into()),
        "launch_blocks_left": header.left,
        "slots": slots.collect::<Value>(),
    })
}

fn slot(slot: &Slot) -> Value {
    let mut told = json!({
        "bytes": slot.len,
        "codec": slot.codec,
        "continued": slot.continued,
        "continues": slot.continues,
    });
    told["kind"] = match slot.kind {
        SlotKind::Records => return with(told, "kind", json!("records")),
        SlotKind::Data => json!("data"),
        SlotKind::Node => json!("node"),
    };
    told["ino"] = json!(slot.ino);
    match slot.kind {
        SlotKind::Node => with(told, "nid", json!(slot.lblk)),
        _ => {
            told["core"] = json!(slot.core);
            told["lblk"] = json!(slot.lblk);
            with(told, "count", json!(slot.blocks))
        }
    }
}

fn with(mut told: Value, name: &str, value: Value) -> Value {
    told[name] = value;
    told
}

/// Records, and in place of one that cannot be read why, which ends them.
fn stream(bytes: &[u8]) -> Value {
    let found = records(bytes).map(|record| match record {
        Ok(record) => self::record(&record),
        Err(fault) => json!({ "fault": fault.to_string() }),
    });
    found.collect()
}

fn record(record: &Record<'_>) -> Value {
    match *record {
        Record::NameAdded {
            parent, ino, name, ..
        } => json!({
            "record": "name added",
            "parent": parent,
            "name": output::name(name).to_string(),
            "ino": ino,
        }),
        Record::NameRemoved { parent, name } => json!({
            "record": "name removed",
            "parent": parent,
            "name": output::name(name).to_string(),
        }),
        Record::Attributes {
            ino,
            whole,
            attributes,
        } => {
            let parsed: Result<_, Corrupt> = Attributes::parse(attributes, ino);
            let told = match parsed {
                Ok(attributes) => self::attributes(&attributes),
                Err(fault) => json!({ "fault": fault.to_string() }),
            };
            json!({ "record": "attributes", "ino": ino, "whole": whole, "attributes": told })
        }
        Record::Map {
            ino,
            lblk,
            count,
            pointer,
            ..
        } => {
            let place = match Pointer::from_raw(pointer) {
                Some(found) => self::pointer(found),
                None => json!({ "kind": "invalid", "raw": pointer }),
            };
            json!({ "record": "map", "ino": ino, "lblk": lblk, "count": count, "place": place })
        }
        Record::Checksums { block, ref sums } => {
            json!({ "record": "checksums", "block": block, "count": sums.len() })
        }
        Record::Inline { ino, bytes } => {
            json!({ "record": "inline", "ino": ino, "bytes": bytes.len() })
        }
        Record::Xattrs {
            ino,
            goes_on,
            bytes,
        } => json!({
            "record": "xattrs",
            "ino": ino,
            "goes_on": goes_on,
            "bytes": bytes.len(),
        }),
    }
}
