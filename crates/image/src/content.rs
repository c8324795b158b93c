//! Reading the content of files.

use anteros_codec::strip_zero_padding;
use anteros_format::Corrupt;
use anteros_format::inode::Inode;

use crate::aligned::Aligned;
use crate::map::{Encoding, Extent, Location, Map, Pcluster, Source};
use crate::read_ahead::ReadAhead;
use crate::serve::counters::add;
use crate::serve::part::Part;
use crate::serve::run::Run;
use crate::serve::serving::Workbench;
use crate::{Error, Image, Place, Result};

/// Decodes whole extents in file order, with one buffer that grows to the largest of them.
///
/// This is for jobs that read everything once and so want no cache.
pub struct Reader<'a> {
    image: &'a Image,
    encoded: ReadAhead,
    decoded: Aligned,
}

impl<'a> Reader<'a> {
    /// A reader that holds no memory yet.
    pub fn new(image: &'a Image) -> Self {
        Self {
            image,
            encoded: ReadAhead::default(),
            decoded: Aligned::default(),
        }
    }

    /// Gives `sink` the bytes of an extent in order, each piece with its offset in the file. An
    /// encoded extent comes in one piece of at most
    /// [`EXTENT_BYTES_MAX`](anteros_format::EXTENT_BYTES_MAX) bytes, any other in pieces of at most
    /// 1 MiB. Holes are not handed over.
    ///
    /// # Errors
    ///
    /// The first error of reading, decoding or of `sink`.
    pub fn read_extent<E: From<Error>>(
        &mut self,
        inode: &Inode,
        extent: &Extent,
        mut sink: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        const PIECE: u64 = 1 << 20;
        if let Source::Pcluster(pcluster) = &extent.source {
            let decoded = self.decoded.resized(extent.len as usize);
            let place = extent.place(inode);
            self.image
                .decode(place, extent.offset, pcluster, &mut self.encoded, decoded)?;
            return sink(extent.offset, decoded);
        }
        let mut done = 0;
        while done < extent.len && extent.source != Source::Hole {
            let len = PIECE.min(extent.len - done);
            let piece = self.decoded.resized(len as usize);
            self.image.read_within(inode, extent, done, piece)?;
            sink(extent.offset + done, piece)?;
            done += len;
        }
        Ok(())
    }

    /// Returns an extent of the packed inode; `None` if it is not encoded, or broken.
    pub(crate) fn packed_extent(&mut self, extent: &Extent) -> Option<&[u8]> {
        let Source::Pcluster(pcluster) = &extent.source else {
            return None;
        };
        let place = Place::Data {
            nid: self.image.superblock().packed?,
            offset: extent.offset,
        };
        let decoded = self.decoded.resized(extent.len as usize);
        let encoded = &mut self.encoded;
        let done = self
            .image
            .decode(place, extent.offset, pcluster, encoded, decoded);
        done.is_ok().then_some(&*decoded)
    }

    /// Fills `out` with bytes of an extent, `skip` bytes from its beginning. Memory for encoded data
    /// is kept; what is encoded should be wanted whole.
    pub(crate) fn read_within(
        &mut self,
        inode: &Inode,
        extent: &Extent,
        skip: u64,
        out: &mut [u8],
    ) -> Result<()> {
        match &extent.source {
            Source::Pcluster(pcluster) if out.len() as u64 == extent.len => {
                let place = extent.place(inode);
                self.image
                    .decode(place, extent.offset, pcluster, &mut self.encoded, out)
            }
            _ => self.image.read_within(inode, extent, skip, out),
        }
    }
}

impl Image {
    /// Fills `buf` with the content of a file from `offset` on, and says how many bytes there were:
    /// fewer than asked only at the end of the file.
    ///
    /// # Errors
    ///
    /// If the index or the data is broken, or the medium fails; then `buf` holds nothing of use.
    pub fn read(&self, inode: &Inode, map: &Map, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = inode.size.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        self.read_exact(inode, map, offset, &mut buf[..count])?;
        Ok(count)
    }

    /// Fills `buf`, all of which lies inside the file.
    pub(crate) fn read_exact(
        &self,
        inode: &Inode,
        map: &Map,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        self.with_bench(|bench| self.read_with(bench, inode, map, offset, buf))
    }

    /// Gathers encoded extents that are wanted whole in runs, and reads all others as they come.
    fn read_with(
        &self,
        bench: &mut Workbench,
        inode: &Inode,
        map: &Map,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut run = Run::default();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let extent = self.extent_at(inode, map, at)?;
            let skip = at - extent.offset;
            let count = (extent.len - skip).min((buf.len() - done) as u64) as usize;
            let out = done..done + count;
            done += count;
            match extent.part(inode, skip, buf.len()) {
                Some(part) if count as u64 == extent.len => {
                    if !run.push(part, out.clone()) {
                        self.finish_run(bench, &mut run, buf)?;
                        run.push(part, out);
                    }
                }
                _ => {
                    // Encoded bytes of the run may still lie where this goes.
                    self.finish_run(bench, &mut run, buf)?;
                    self.read_piece(bench, inode, &extent, skip, &mut buf[out])?;
                }
            }
        }
        self.finish_run(bench, &mut run, buf)
    }

    /// Fills `buf` with bytes of an extent, `skip` bytes from its beginning.
    fn read_within(&self, inode: &Inode, extent: &Extent, skip: u64, buf: &mut [u8]) -> Result<()> {
        self.with_bench(|bench| self.read_piece(bench, inode, extent, skip, buf))
    }

    fn read_piece(
        &self,
        bench: &mut Workbench,
        inode: &Inode,
        extent: &Extent,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        if let Some(part) = extent.part(inode, skip, buf.len()) {
            return self.read_part(bench, &part, buf);
        }
        let place = extent.place(inode);
        match &extent.source {
            Source::Hole if self.is_special(inode.nid) => {
                // No writer leaves holes there, and metadata made of nothing has no end.
                return Err(Error::corrupt(place)(Corrupt::SpecialHole));
            }
            Source::Hole => buf.fill(0),
            Source::Raw(location) => self.read_plain(place, *location, skip, buf)?,
            Source::Fragment { offset } => {
                let at = offset.saturating_add(skip);
                let (packed, map) = self.check_fragment(place, at, buf.len() as u64)?;
                self.read_with(bench, packed, map, at, buf)?;
            }
            Source::Pcluster(pcluster) if pcluster.encoding == Encoding::Interlaced => {
                self.read_interlaced(place, extent.offset, pcluster, skip, buf)?;
            }
            Source::Pcluster(pcluster) => {
                self.read_plain(place, pcluster.location, skip, buf)?;
            }
        }
        Ok(())
    }

    /// Bytes as they lie on the device, straight into the reader's buffer.
    fn read_plain(
        &self,
        place: Place,
        location: Location,
        skip: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let at = location
            .plus(skip)
            .ok_or_else(|| Error::corrupt(place)(Corrupt::AddressOverflow { what: "its data" }))?;
        add(&self.serve.counters.plain_bytes, buf.len() as u64);
        self.read_raw(place, at, buf)?;
        self.fetch_ahead(at, buf.len() as u64);
        Ok(())
    }

    /// Decodes a pcluster into an extent's bytes, which begin at `offset` of the file.
    pub(crate) fn decode(
        &self,
        place: Place,
        offset: u64,
        pcluster: &Pcluster,
        encoded: &mut ReadAhead,
        out: &mut [u8],
    ) -> Result<()> {
        match pcluster.encoding {
            Encoding::Plain => self.read_raw(place, pcluster.location, out),
            Encoding::Interlaced => self.read_interlaced(place, offset, pcluster, 0, out),
            Encoding::Compressed(algorithm) => {
                let encoded =
                    encoded.get(self, place, pcluster.location, pcluster.bytes as usize)?;
                let stream = &encoded[self.stream_start(place, encoded)?..];
                let (params, length) = (self.params(), pcluster.length());
                self.with_bench(|bench| {
                    bench
                        .decoder
                        .decode(algorithm, &params, stream, out, length)
                })
                .map_err(|fault| Error::Decode { place, fault })
            }
        }
    }

    /// The pcluster is rotated so that each byte keeps its offset within a block: up to the end of
    /// its first block, the extent lies at the end of the pcluster.
    fn read_interlaced(
        &self,
        place: Place,
        offset: u64,
        pcluster: &Pcluster,
        skip: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let block = u64::from(self.superblock().block_bytes());
        let front = block - offset % block;
        let turn = u64::from(pcluster.bytes) - front;
        let count = front.saturating_sub(skip).min(out.len() as u64) as usize;
        let (first, rest) = out.split_at_mut(count);
        self.read_plain(place, pcluster.location, turn + skip, first)?;
        let skip = (skip + count as u64).saturating_sub(front);
        self.read_plain(place, pcluster.location, skip, rest)
    }

    /// Returns where the stream begins in the bytes of a pcluster.
    pub(crate) fn stream_start(&self, place: Place, encoded: &[u8]) -> Result<usize> {
        let padding_max = self.superblock().block_bytes() as usize - 1;
        let stream = strip_zero_padding(encoded, padding_max).ok_or_else(|| {
            let found = encoded.iter().position(|&b| b != 0);
            let found = found.unwrap_or(encoded.len());
            Error::corrupt(place)(Corrupt::Padding { found })
        })?;
        Ok(encoded.len() - stream.len())
    }
}

impl Extent {
    /// Returns what lies behind the first `skip` bytes for a request of so many, if the extent is compressed.
    fn part(&self, inode: &Inode, skip: u64, requested: usize) -> Option<Part> {
        let Source::Pcluster(pcluster) = self.source else {
            return None;
        };
        let Encoding::Compressed(algorithm) = pcluster.encoding else {
            return None;
        };
        Some(Part {
            place: self.place(inode),
            pcluster,
            algorithm,
            len: self.len,
            skip,
            requested,
        })
    }

    fn place(&self, inode: &Inode) -> Place {
        Place::Data {
            nid: inode.nid,
            offset: self.offset,
        }
    }
}
