//! Data that goes into files.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::problem::{ExtractProblem, os};
use super::run::{OpenFile, Run};
use crate::parts::{Batch, Part, PartReader, Piece};

impl Run<'_> {
    pub(super) fn write_parts(&self, reader: &mut PartReader<'_>, parts: Batch<OpenFile>) {
        for Part { file, range } in parts {
            if !self.stopped() {
                let written = self.write(reader, &file, range);
                self.note(&file, written);
            }
            self.let_go(file);
        }
    }

    /// Notes that a part of a file could not be had.
    pub(super) fn note(&self, file: &OpenFile, written: Result<(), ExtractProblem>) {
        if let Err(problem) = written {
            file.parts_failed.fetch_add(1, Ordering::Relaxed);
            self.fail(&file.trail, problem);
        }
    }

    pub(super) fn write(
        &self,
        reader: &mut PartReader<'_>,
        file: &OpenFile,
        part: Range<u64>,
    ) -> Result<(), ExtractProblem> {
        reader.read(&file.inode, &part, |offset, piece| match piece {
            Piece::Data(data) => self.put(file, offset, data),
            Piece::Hole(_) => self.check_cancel(),
        })
    }

    pub(super) fn put(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &[u8],
    ) -> Result<(), ExtractProblem> {
        self.check_cancel()?;
        write_all_at(&file.fd, data, offset).map_err(os("write the data"))?;
        self.count(|summary| summary.bytes += data.len() as u64);
        self.observer.wrote(data.len() as u64);
        Ok(())
    }
}

fn write_all_at(fd: &OwnedFd, mut data: &[u8], mut offset: u64) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::pwrite(fd, data, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                data = &data[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
