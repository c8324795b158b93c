//! Sources that are read once, from front to back, such as pipes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;

/// Bytes that a pipe may hold: what Linux allows everyone.
const PIPE_BYTES: usize = 1 << 20;

/// The longest time for which a build that is cancelled waits for a pipe.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Opens a file for reading. Of a named pipe nobody is waited for until it is read.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Bytes of a source.
pub(crate) enum Bytes<'a> {
    File(File),
    Stream(Box<dyn Read + 'a>),
}

impl<'a> Bytes<'a> {
    /// The bytes one after the other. Whoever waits for those of a pipe stops when `cancel` becomes true.
    pub fn reader(self, cancel: &'a AtomicBool) -> Box<dyn Read + 'a> {
        match self {
            Self::File(file) => {
                // Fewer turns of reader and writer; it does without where that is not allowed, and a file has none.
                let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
                Box::new(Cancellable { file, cancel })
            }
            Self::Stream(reader) => reader,
        }
    }
}

/// A file that may have to be waited for.
struct Cancellable<'a> {
    file: File,
    cancel: &'a AtomicBool,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if is_ready(&self.file)? {
                match self.file.read(buf) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(io::Error::other("cancelled"));
            }
        }
    }
}

/// Waits a moment for bytes or the end of a file.
fn is_ready(file: &File) -> io::Result<bool> {
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&PATIENCE)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for_once_the_build_is_cancelled() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut writer = File::from(writer);
        let cancel = AtomicBool::new(false);
        let mut reader = Bytes::File(File::from(reader)).reader(&cancel);
        writer.write_all(b"bytes").unwrap();
        let mut found = [0; 10];
        assert_eq!(reader.read(&mut found).unwrap(), 5);
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(
            reader.read(&mut found).unwrap_err().to_string(),
            "cancelled"
        );
        drop(writer);
        assert_eq!(reader.read(&mut found).unwrap(), 0);
    }
}
