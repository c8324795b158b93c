//! Parts of a log in words.

use anteros_log::layout::Corrupt;
use anteros_log::layout::node::{Attributes, NodeHeader, NodeKind};
use anteros_log::layout::pointer::Pointer;
use anteros_log::layout::record::Record;
use anteros_log::{Area, NodeView, Run};

use crate::output;
/// The kind of a node in words.
const fn kind_name(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Inode => "the inode",
        NodeKind::Direct => "direct",
        NodeKind::Indirect => "indirect",
        NodeKind::Attributes => "attributes",
    }
}

/// The place of a node.
pub(super) fn node_text(node: &NodeView) -> String {
    let place = match (node.block, node.slot) {
        (None, _) => "written by no checkpoint yet".to_owned(),
        (Some(block), None) => format!("block {block}"),
        (Some(block), Some(slot)) => format!("slot {slot} of block {block}"),
    };
    match node.place {
        Some((kind, position)) => format!(
            "{}: {place}, {}, position {position}",
            node.nid,
            kind_name(kind)
        ),
        None => format!("{}: {place}", node.nid),
    }
}

/// The header of a node.
pub(super) fn header_text(header: &NodeHeader) -> String {
    let NodeHeader {
        nid,
        ino,
        version,
        kind,
        position,
    } = *header;
    format!(
        "node {nid} of inode {ino}, {}, position {position}, before checkpoint {version}",
        kind_name(kind)
    )
}

/// The place of a run of logical blocks.
pub(super) fn run_text(run: &Run) -> String {
    let &Run {
        lblk,
        count,
        pointer,
    } = run;
    match count {
        1 => format!("{lblk}: {}", pointer_text(pointer, 1)),
        _ => format!(
            "{lblk} to {}: {}",
            lblk + count - 1,
            pointer_text(pointer, count)
        ),
    }
}

/// The place of so many logical blocks.
fn pointer_text(pointer: Pointer, count: u32) -> String {
    match pointer {
        Pointer::Hole => "a hole".into(),
        Pointer::Preallocated => "preallocated".into(),
        Pointer::Plain(block, _) if count == 1 => format!("block {block}"),
        Pointer::Plain(block, _) => format!("blocks {block} to {}", block + u64::from(count) - 1),
        Pointer::Packed(at) => format!(
            "compressed, slot {} of block {}, block {} of its chunk",
            at.slot, at.block, at.sequence
        ),
    }
}

/// The area of the log that a block lies in.
pub(super) fn area_text(area: Area) -> String {
    match area {
        Area::Superblock(copy) => format!("superblock {copy}"),
        Area::Checkpoint { pack, index } => format!("checkpoint pack {pack}, block {index}"),
        Area::Table {
            name,
            copy,
            index,
            counts,
        } => {
            let counts = counts.map_or("", |counts| {
                if counts {
                    ", which counts"
                } else {
                    ", which does not count"
                }
            });
            format!("{name}, block {index} of copy {copy}{counts}")
        }
        Area::Main {
            segment,
            index: 511,
        } => format!("summary of segment {segment}"),
        Area::Main { segment, index } => format!("segment {segment}, block {index}"),
        Area::Unused => "not used".into(),
    }
}

/// A record of a group.
pub(super) fn record_text(record: &Record<'_>) -> String {
    match *record {
        Record::NameAdded {
            parent, ino, name, ..
        } => format!("directory {parent}: {} is inode {ino}", output::name(name)),
        Record::NameRemoved { parent, name } => {
            format!("directory {parent}: no {} any more", output::name(name))
        }
        Record::Attributes {
            ino,
            whole,
            attributes,
        } => {
            let parsed: Result<_, Corrupt> = Attributes::parse(attributes, ino);
            let what = if whole {
                "attributes and content"
            } else {
                "attributes"
            };
            match parsed {
                Ok(Attributes {
                    kind,
                    perm,
                    nlink,
                    uid,
                    gid,
                    size,
                    ..
                }) => {
                    format!(
                        "inode {ino}: {what}: {}, mode {perm:04o}, {nlink} links, owner {uid}:{gid}, {size} bytes",
                        kind.name()
                    )
                }
                Err(fault) => format!("inode {ino}: {what}: {fault}"),
            }
        }
        Record::Map {
            ino,
            lblk,
            count,
            pointer,
            ..
        } => format!("inode {ino}: {}", map_text(lblk, count, pointer)),
        Record::Checksums { block, ref sums } => format!(
            "checksums of blocks {block} to {}",
            block + sums.len() as u64 - 1
        ),
        Record::Inline { ino, bytes } => format!("inode {ino}: {} bytes of content", bytes.len()),
        Record::Xattrs {
            ino,
            goes_on,
            bytes,
        } => {
            let part = if goes_on { ", and more" } else { "" };
            format!(
                "inode {ino}: {} bytes of extended attributes{part}",
                bytes.len()
            )
        }
    }
}

/// A run of logical blocks as a record has it.
fn map_text(lblk: u32, count: u32, raw: u64) -> String {
    match Pointer::from_raw(raw) {
        Some(pointer) => run_text(&Run {
            lblk,
            count,
            pointer,
        }),
        None => format!("{lblk}, {count} of them: {raw:#018x}, which is no pointer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_in_words() {
        let run = |count, pointer| {
            run_text(&Run {
                lblk: 3,
                count,
                pointer,
            })
        };
        assert_eq!(run(1, Pointer::unchecked(9)), "3: block 9");
        assert_eq!(run(4, Pointer::unchecked(9)), "3 to 6: blocks 9 to 12");
        assert_eq!(run(2, Pointer::Preallocated), "3 to 4: preallocated");
        assert_eq!(
            map_text(3, 1, u64::MAX),
            "3, 1 of them: 0xffffffffffffffff, which is no pointer"
        );
        let table = Area::Table {
            name: "segment table",
            copy: 1,
            index: 2,
            counts: Some(false),
        };
        assert_eq!(
            area_text(table),
            "segment table, block 2 of copy 1, which does not count"
        );
        assert_eq!(
            area_text(Area::Main {
                segment: 4,
                index: 511
            }),
            "summary of segment 4"
        );
    }
}
