//! Parts as they are stored in a temporary file.

use anteros_core::{Algorithm, Record};
use anteros_format::Nid;

use crate::Place;
use crate::map::{Encoding, Location};

use super::part::{Encoded, Part, What};

/// Stands for the metabox where the number of a device is stored.
const METABOX: u32 = 1 << 16;

impl Record for Part {
    const BYTES: usize = 44;

    fn store(&self, out: &mut [u8]) {
        let device = match self.location {
            Location::Device { device, .. } => device.into(),
            Location::Metabox { .. } => METABOX,
        };
        let (place, nid, offset) = place_numbers(self.place);
        let (what, len, encoding, flags) = what_numbers(self.what);
        out[..4].copy_from_slice(&device.to_le_bytes());
        out[4..12].copy_from_slice(&self.location.address().to_le_bytes());
        out[12..20].copy_from_slice(&self.bytes.to_le_bytes());
        out[20..28].copy_from_slice(&nid.to_le_bytes());
        out[28..36].copy_from_slice(&offset.to_le_bytes());
        out[36..40].copy_from_slice(&len.to_le_bytes());
        out[40..].copy_from_slice(&[place, what, encoding, flags]);
    }

    fn load(bytes: &[u8]) -> Self {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let address = long(4);
        let location = match u16::try_from(short(0)) {
            Ok(device) => Location::Device { device, address },
            Err(_) => Location::Metabox { address },
        };
        Self {
            location,
            bytes: long(12),
            place: place(bytes[40], Nid(long(20)), long(28)),
            what: what(bytes[41], short(36), bytes[42], bytes[43]),
        }
    }

    fn absorb(&mut self, next: &Self) -> bool {
        next.is_repeated_by(self)
    }
}

fn place_numbers(place: Place) -> (u8, u64, u64) {
    match place {
        Place::Superblock => (0, 0, 0),
        Place::ComprCfgs => (1, 0, 0),
        Place::DeviceTable => (2, 0, 0),
        Place::XattrPrefixes => (3, 0, 0),
        Place::Inode(Nid(nid)) => (4, nid, 0),
        Place::Directory { nid, block } => (5, nid.0, block),
        Place::Xattrs(Nid(nid)) => (6, nid, 0),
        Place::Data { nid, offset } => (7, nid.0, offset),
        Place::Image => (8, 0, 0),
    }
}

fn place(number: u8, nid: Nid, offset: u64) -> Place {
    match number {
        0 => Place::Superblock,
        1 => Place::ComprCfgs,
        2 => Place::DeviceTable,
        3 => Place::XattrPrefixes,
        4 => Place::Inode(nid),
        5 => Place::Directory { nid, block: offset },
        6 => Place::Xattrs(nid),
        7 => Place::Data { nid, offset },
        _ => Place::Image,
    }
}

const PARTIAL: u8 = 1;
const INLINE: u8 = 2;

fn what_numbers(what: What) -> (u8, u32, u8, u8) {
    match what {
        What::Metadata => (0, 0, 0, 0),
        What::SharedXattr => (1, 0, 0, 0),
        What::Flat => (2, 0, 0, 0),
        What::Chunk => (3, 0, 0, 0),
        What::Encoded(encoded) => {
            let encoding = match encoded.encoding {
                Encoding::Plain => 0,
                Encoding::Interlaced => 1,
                Encoding::Compressed(algorithm) => 2 + algorithm as u8,
            };
            let partial = if encoded.partial { PARTIAL } else { 0 };
            let inline = if encoded.inline { INLINE } else { 0 };
            (4, encoded.len, encoding, partial | inline)
        }
    }
}

fn what(number: u8, len: u32, encoding: u8, flags: u8) -> What {
    let algorithm = |number: u8| Algorithm::ALL.get(usize::from(number)).copied();
    match number {
        0 => What::Metadata,
        1 => What::SharedXattr,
        2 => What::Flat,
        3 => What::Chunk,
        _ => What::Encoded(Encoded {
            len,
            encoding: match encoding {
                0 => Encoding::Plain,
                1 => Encoding::Interlaced,
                number => algorithm(number - 2).map_or(Encoding::Plain, Encoding::Compressed),
            },
            partial: flags & PARTIAL != 0,
            inline: flags & INLINE != 0,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_as_it_was_written() {
        let nid = Nid(u64::MAX - 5);
        let places = [
            Place::Superblock,
            Place::ComprCfgs,
            Place::DeviceTable,
            Place::XattrPrefixes,
            Place::Inode(nid),
            Place::Directory { nid, block: 9 },
            Place::Xattrs(nid),
            Place::Data {
                nid,
                offset: 1 << 50,
            },
            Place::Image,
        ];
        let compressed = Algorithm::ALL.map(Encoding::Compressed);
        let encodings = [Encoding::Plain, Encoding::Interlaced]
            .into_iter()
            .chain(compressed);
        let flags = [(false, false), (true, false), (false, true)];
        let encoded = encodings.flat_map(|encoding| {
            flags.map(|(partial, inline)| {
                What::Encoded(Encoded {
                    len: 12 << 20,
                    encoding,
                    partial,
                    inline,
                })
            })
        });
        let plain = [What::Metadata, What::SharedXattr, What::Flat, What::Chunk];
        let address = (1 << 50) + 7;
        let locations = [
            Location::Device { device: 0, address },
            Location::Device {
                device: u16::MAX,
                address,
            },
            Location::Metabox { address },
        ];
        for what in plain.into_iter().chain(encoded) {
            for place in places {
                for location in locations {
                    let part = Part {
                        location,
                        bytes: 4097,
                        place,
                        what,
                    };
                    let mut bytes = [0; Part::BYTES];
                    part.store(&mut bytes);
                    assert_eq!(Part::load(&bytes), part);
                }
            }
        }
    }
}
