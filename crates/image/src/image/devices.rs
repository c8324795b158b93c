//! Reading the devices of an image.

use std::io::{self, IoSliceMut};
use std::ops::Range;

use anteros_core::Device;
use anteros_format::Corrupt;

use super::{DeviceInfo, Image};
use crate::error::{Error, Place, Result};
use crate::map::Location;
use crate::serve::counters::add;

/// The bytes that a medium loses at a time, where it does not say so itself.
const FAULTY_BLOCK: u64 = 4 << 10;

impl Image {
    /// The devices, the primary one first.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let slots = std::iter::once(None).chain(self.slots.iter().cloned().map(Some));
        let devices = self.devices.iter().zip(slots);
        devices
            .map(|(d, slot)| DeviceInfo {
                name: d.name(),
                size: d.size(),
                slot,
            })
            .collect()
    }

    /// Name of the image: that of its primary device.
    pub fn name(&self) -> String {
        self.devices[0].name()
    }

    /// The bytes that there are of the primary device.
    pub fn primary_size(&self) -> u64 {
        self.devices[0].size()
    }

    /// Reads bytes of the primary device as they are.
    ///
    /// # Errors
    ///
    /// If they do not lie there, or the medium fails.
    pub fn read_primary(&self, place: Place, address: u64, buf: &mut [u8]) -> Result<()> {
        self.read_raw(place, Location::Device { device: 0, address }, buf)
    }

    /// Reads bytes of a device as they are, or of the metabox.
    pub(crate) fn read_raw(&self, place: Place, at: Location, buf: &mut [u8]) -> Result<()> {
        let Location::Device { device, address } = at else {
            return self.read_meta(place, at, buf);
        };
        if buf.is_empty() {
            return Ok(());
        }
        self.check_bounds(place, "it", at, buf.len() as u64)?;
        let source = &self.devices[usize::from(device)];
        self.count_read(buf.len());
        let len = buf.len() as u64;
        source
            .read_at(address, buf)
            .map_err(|error| io_error(place, &**source, address..address + len, error))
    }

    /// As [`read_raw`](Self::read_raw), into several buffers, one after the other.
    pub(crate) fn read_raw_vectored(
        &self,
        place: Place,
        at: Location,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<()> {
        let (Location::Device { device, address }, true) = (at, bufs.len() > 1) else {
            let single = bufs.first_mut().map(|buf| self.read_raw(place, at, buf));
            return single.unwrap_or(Ok(()));
        };
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.check_bounds(place, "it", at, len as u64)?;
        let source = &self.devices[usize::from(device)];
        self.count_read(len);
        source
            .read_vectored_at(address, bufs)
            .map_err(|error| io_error(place, &**source, address..address + len as u64, error))
    }

    fn count_read(&self, bytes: usize) {
        add(&self.serve.counters.device_reads, 1);
        add(&self.serve.counters.device_bytes, bytes as u64);
    }

    /// Says that bytes of a device will be wanted soon.
    pub(crate) fn will_need(&self, at: Location, bytes: u64) {
        if let Location::Device { device, address } = at {
            if let Some(device) = self.devices.get(usize::from(device)) {
                device.will_need(address, bytes);
            }
        }
    }

    /// Bytes that a device has from a location on; none of the metabox.
    pub(crate) fn bytes_from(&self, at: Location) -> u64 {
        let Location::Device { device, address } = at else {
            return 0;
        };
        let size = self
            .devices
            .get(usize::from(device))
            .map_or(0, |d| d.size());
        size.saturating_sub(address)
    }

    /// Checks that bytes lie wholly inside the device or metabox that has their location.
    pub(crate) fn check_bounds(
        &self,
        place: Place,
        what: &'static str,
        at: Location,
        bytes: u64,
    ) -> Result<()> {
        let (of, size) = match at {
            Location::Device { device, .. } => {
                let given = self.devices.len() - 1;
                let source = self.devices.get(usize::from(device));
                let source = source.ok_or(Error::Devices {
                    needed: device,
                    given,
                    next: None,
                })?;
                let of = if device == 0 {
                    "the image"
                } else {
                    "an extra device"
                };
                (of, source.size())
            }
            Location::Metabox { .. } => {
                let metabox = self.metabox.as_ref();
                ("the metabox", metabox.map_or(0, |(inode, _)| inode.size))
            }
        };
        let end = at.address().saturating_add(bytes);
        if end > size {
            let fault = Corrupt::OutOfBounds {
                what,
                end,
                of,
                size,
            };
            return Err(Error::Corrupt { place, fault });
        }
        Ok(())
    }

    /// Place of a unified address: on the primary device, unless an extra device has it.
    pub(crate) fn resolve(&self, address: u64) -> Location {
        let bits = self.sb.block_bits;
        for (device, slot) in (1..).zip(&self.slots) {
            let start = slot.unified_block.map(|block| block << bits);
            let len = slot.blocks << bits;
            if let Some(skip) = start.and_then(|start| address.checked_sub(start)) {
                if skip < len {
                    return Location::Device {
                        device,
                        address: skip,
                    };
                }
            }
        }
        Location::Device { device: 0, address }
    }
}

/// The error of a read of bytes of a device, with the first block of them that cannot be read.
pub(super) fn io_error(
    place: Place,
    device: &dyn Device,
    bytes: Range<u64>,
    source: io::Error,
) -> Error {
    let is_readable = |at: u64| {
        let (start, end) = (at.max(bytes.start), (at + FAULTY_BLOCK).min(bytes.end));
        device
            .read_at(start, &mut vec![0; (end - start) as usize])
            .is_ok()
    };
    let first = bytes.start / FAULTY_BLOCK * FAULTY_BLOCK;
    let mut blocks = (first..bytes.end).step_by(FAULTY_BLOCK as usize);
    Error::Io {
        place,
        device: device.name(),
        at: blocks.find(|&at| !is_readable(at)),
        source,
    }
}
