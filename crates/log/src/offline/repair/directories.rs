//! Names: what they refer to, where they lie, and a home for what has none.

use anteros_core::{Caller, FileKind, FsResult, Rdev};

use super::Mender;
use super::damage::Fate;
use super::names::{Name, place, salvage};
use super::survey::Survey;
use crate::error::LogError;
use crate::files::dir::{Named, kind_of, type_of};
use crate::files::names::Birth;
use crate::layout::ROOT;

/// Directory for inodes without a name.
const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Mender {
    pub(super) fn mend_directories(&mut self, survey: &Survey) -> Result<(), LogError> {
        for (&ino, scattered) in &survey.damage.scattered {
            let (fault, kept) = (scattered.text(), self.gather(ino)?);
            self.tell(
                format_args!("directory {ino}"),
                format_args!("{fault}: its {kept} names that can be read are written anew"),
            );
        }
        for (fate, name) in &survey.names {
            match survey.damage.torn.contains(&name.parent) {
                true => {
                    let text =
                        "names something that is not there, has another name or is of another kind";
                    self.repaired.left.push(format!("{}: {text}", name.place()));
                }
                false => self.mend_name(*fate, name)?,
            }
        }
        Ok(())
    }

    fn mend_name(
        &mut self,
        fate: Fate,
        Name {
            parent,
            name,
            named,
        }: &Name,
    ) -> FsResult<()> {
        let Named { ino, kind } = *named;
        let text = match fate {
            Fate::Renamed => {
                self.state.replace_name(*parent, name, *named)?;
                let kind = kind_of(kind).name();
                format!("inode {ino} is a {kind}, and is named so now")
            }
            Fate::Dangling => {
                self.state.remove_name(*parent, name)?;
                format!("inode {ino} is not there: the name is removed")
            }
            Fate::Second => {
                self.state.remove_name(*parent, name)?;
                format!("directory {ino} has another name: this one is removed")
            }
        };
        self.tell(place(*parent, name), text);
        self.relieve()
    }

    /// Puts the names of a directory into new blocks, and says how many they are.
    fn gather(&mut self, ino: u32) -> Result<usize, LogError> {
        let names = salvage(&mut self.state, ino, self.memory)?;
        self.state.drop_content(ino)?;
        let live = self.state.live(ino)?;
        live.inode_mut().inline.clear();
        live.inode_mut().entries = 0;
        let attributes = live.attributes();
        attributes.is_inline = true;
        attributes.size = 0;
        for (name, named) in &names {
            self.state.add_name(ino, name, *named)?;
        }
        self.relieve()?;
        Ok(names.len())
    }

    /// Gives names to what has none.
    pub(super) fn house_lost(&mut self, survey: &Survey) -> FsResult<()> {
        if survey.damage.lost.is_empty() {
            return Ok(());
        }
        let home = match self.state.find(ROOT, LOST_AND_FOUND)? {
            Some(named) => named.ino,
            None => self.make_home()?,
        };
        if self.state.live(home)?.kind() != FileKind::Directory {
            let count = survey.damage.lost.len();
            let text = "no name leads to them, and /lost+found is no directory";
            self.repaired.left.push(format!("{count} inodes: {text}"));
            return Ok(());
        }
        for &ino in &survey.damage.lost {
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
}
