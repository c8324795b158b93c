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
        if let Some(fault) = &damage.own_record {
            self.forget_own_record(fault);
        }
        for (ino, change) in &damage.changes {
            self.mend_inode(*ino, change)?;
            self.relieve()?;
        }
        Ok(())
    }

    fn forget_own_record(&mut self, fault: &str) {
        self.state.files.set_record_ino(0);
        self.tell(
            "checkpoint",
            format_args!("{fault}; it names none any more"),
        );
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
            Change::Disowned => {
                live.attributes().is_own = false;
                "belonged to the log itself, but has a name: it is a file like others".to_owned()
            }
            Change::Removed => {
                self.state.drop_own(ino)?;
                "belonged to the log itself, but was not its own record: it is removed".to_owned()
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
