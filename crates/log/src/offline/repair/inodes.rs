//! Attributes and counts in inodes.

use anteros_core::FsResult;

use super::Mender;
use super::damage::{Change, Damage};

impl Mender {
    pub(super) fn mend_inodes(&mut self, damage: &Damage) -> FsResult<()> {
        for &nid in damage.unwritten.iter().chain(&damage.stray) {
            self.state.nodes.free_stray(nid)?;
            self.tell(
                format_args!("node {nid}"),
                "was in use and belonged to nothing; the number is free",
            );
        }
        for (ino, change) in &damage.changes {
            self.mend_inode(*ino, change)?;
            self.relieve()?;
        }
        Ok(())
    }

    fn mend_inode(&mut self, ino: u32, change: &Change) -> FsResult<()> {
        let live = self.state.live(ino)?;
        let text = match change {
            Change::Attributes(fault) => {
                self.state.lose_xattrs(ino)?;
                format!("its extended attributes are lost: {fault}")
            }
            Change::Blocks(counted) => {
                let stated = std::mem::replace(&mut live.attributes().blocks, *counted);
                format!("said that it takes {stated} blocks, but takes {counted}")
            }
            Change::Beyond(lblk) => {
                self.state.clear_pointers(ino, *lblk..*lblk + 1)?;
                format!("had a block {lblk} behind its end, which nobody can read")
            }
            Change::Entries(counted) => {
                let stated = std::mem::replace(&mut live.inode_mut().entries, *counted);
                format!("said that it has {stated} names, but has {counted}")
            }
            Change::Links(counted) => {
                let stated = std::mem::replace(&mut live.attributes().nlink, *counted);
                format!("said that it has {stated} links, but has {counted}")
            }
            Change::Parent(parent) => {
                let stated = std::mem::replace(&mut live.attributes().parent, *parent);
                format!("said that it lies in directory {stated}, but lies in {parent}")
            }
        };
        let what = match change {
            Change::Entries(_) | Change::Parent(_) => "directory",
            _ => "inode",
        };
        self.tell(format_args!("{what} {ino}"), text);
        Ok(())
    }
}
