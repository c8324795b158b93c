//! Zstandard, by way of libzstd.
//!
//! A whole frame decodes straight into the output, which is its own window. The front of a frame goes
//! through libzstd's streaming decoder, which keeps a window of its own: that is the memory which
//! [`Params::zstd_window_log`] bounds.

use zstd_safe::{DCtx, DParameter, ErrorCode, InBuffer, OutBuffer, ResetDirective};

use crate::decoder::{expect_consumed, expect_full};
use crate::{Fault, Length, Params};

/// libzstd's decompression context, reset before each frame.
pub(crate) struct ZstdDecoder(DCtx<'static>);

impl ZstdDecoder {
    /// The decoder in `slot`, created there if need be.
    pub(crate) fn get_or_create(slot: &mut Option<Self>) -> Result<&mut Self, Fault> {
        match slot {
            Some(decoder) => Ok(decoder),
            None => {
                let context = DCtx::try_create().ok_or(Fault::OutOfMemory)?;
                Ok(slot.insert(Self(context)))
            }
        }
    }

    /// See [`Decoder::decode`](crate::Decoder::decode).
    pub(crate) fn decode(
        &mut self,
        window_log: u8,
        stream: &[u8],
        out: &mut [u8],
        length: Length,
    ) -> Result<(), Fault> {
        check_window_log(window_log)?;
        match length {
            Length::Exact => self.decode_frame(stream, out),
            Length::AtLeast => self.decode_front(window_log, stream, out),
        }
    }

    fn decode_frame(&mut self, stream: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        // libzstd would decode several frames in a row; here one is the rule.
        let frame_len = zstd_safe::find_frame_compressed_size(stream).map_err(malformed)?;
        expect_consumed(stream.len(), frame_len)?;
        let got = self.0.decompress(out, stream).map_err(malformed)?;
        expect_full(out.len(), got)
    }

    fn decode_front(&mut self, window_log: u8, stream: &[u8], out: &mut [u8]) -> Result<(), Fault> {
        self.0
            .reset(ResetDirective::SessionOnly)
            .map_err(malformed)?;
        self.0
            .set_parameter(DParameter::WindowLogMax(u32::from(window_log)))
            .map_err(malformed)?;
        let wanted = out.len();
        let mut input = InBuffer::around(stream);
        let mut output = OutBuffer::around(out);
        while output.pos() < wanted {
            let before = (input.pos(), output.pos());
            let hint = self
                .0
                .decompress_stream(&mut output, &mut input)
                .map_err(malformed)?;
            let frame_ended = hint == 0;
            if frame_ended || before == (input.pos(), output.pos()) {
                break;
            }
        }
        expect_full(wanted, output.pos())
    }
}

fn check_window_log(window_log: u8) -> Result<(), Fault> {
    let (min, max) = (Params::ZSTD_WINDOW_LOG_MIN, Params::ZSTD_WINDOW_LOG_MAX);
    if (min..=max).contains(&window_log) {
        return Ok(());
    }
    Err(Fault::Unsupported {
        what: "window log",
        value: u64::from(window_log),
        min: u64::from(min),
        max: u64::from(max),
    })
}

fn malformed(code: ErrorCode) -> Fault {
    Fault::Malformed(zstd_safe::get_error_name(code))
}
