//! Traces are written as they are read.

use std::io::{self, Write};

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::{Action, HEADER_BYTES, Record, directory_of, malformed};

/// As in `zstd --long=24`: journals repeat what databases had long ago.
const WINDOW_LOG: u32 = 24;
const LEVEL: i32 = 9;
/// States what is encoded at once.
const BUFFER_BYTES: usize = 128 << 10;

/// A trace that is being written.
pub struct Writer<W> {
    out: W,
    context: CCtx<'static>,
    encoded: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    ///
    /// When there is no memory to encode.
    pub fn new(out: W) -> io::Result<Self> {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::WindowLog(WINDOW_LOG),
            CParameter::ChecksumFlag(true),
        ] {
            context.set_parameter(parameter).map_err(failed)?;
        }
        Ok(Self {
            out,
            context,
            encoded: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// Writes a record.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        let (op, offset, len, data) = fields(&record.path, &record.action);
        let path = record.path.as_bytes();
        let mut header = [0; HEADER_BYTES];
        header[0] = op;
        header[4..8].copy_from_slice(&(path.len() as u32).to_le_bytes());
        let numbers = [record.micros, offset, len];
        for (at, number) in header[8..].chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        for part in [&header, path, data] {
            self.encode(part, ZSTD_EndDirective::ZSTD_e_continue)?;
        }
        Ok(())
    }

    /// Ends the trace.
    ///
    /// # Errors
    ///
    /// When the rest cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.encode(&[], ZSTD_EndDirective::ZSTD_e_end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn encode(&mut self, bytes: &[u8], end: ZSTD_EndDirective) -> io::Result<()> {
        let mut input = InBuffer::around(bytes);
        loop {
            self.encoded.clear();
            let mut output = OutBuffer::around(&mut self.encoded);
            let left = self
                .context
                .compress_stream2(&mut output, &mut input, end)
                .map_err(failed)?;
            self.out.write_all(&self.encoded)?;
            let is_ending = matches!(end, ZSTD_EndDirective::ZSTD_e_end);
            if input.pos() == bytes.len() && (left == 0 || !is_ending) {
                return Ok(());
            }
        }
    }
}

/// Returns what a record of this has: the operation, offset, length and data.
fn fields<'a>(path: &str, action: &'a Action) -> (u8, u64, u64, &'a [u8]) {
    let named = |op, name: &'a str| (op, 0, name.len() as u64, name.as_bytes());
    match action {
        Action::Write { offset, data } => (b'W', *offset, data.len() as u64, data),
        Action::Allocate { offset, len } => (b'A', *offset, *len, &[]),
        Action::Truncate { size } => (b'T', *size, 0, &[]),
        Action::Rename { from } if directory_of(from) == directory_of(path) => named(b'R', from),
        Action::Rename { from } => named(b'V', from),
        Action::Fsync => (b'F', 0, 0, &[]),
        Action::Fdatasync => (b'D', 0, 0, &[]),
        Action::SyncDirectory => (b'S', 0, 0, &[]),
        Action::Create => (b'C', 0, 0, &[]),
        Action::Unlink => (b'U', 0, 0, &[]),
    }
}

fn failed(code: usize) -> io::Error {
    malformed(zstd_safe::get_error_name(code))
}
