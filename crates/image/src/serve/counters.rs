//! Costs of serving, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that only grow.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters that any thread may raise.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Holds what reading an image has cost since it was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct ReadStatistics {
            $($(#[$doc])* pub $name: u64,)*
            /// Readers that waited for another one to read or decode what they wanted too.
            pub cohort_waits: u64,
            /// Bytes that caches of data and decoding take now.
            pub memory_bytes: u64,
            /// The most that they ever took.
            pub memory_peak_bytes: u64,
            /// The most that they may take.
            pub memory_max_bytes: u64,
            /// Bytes of metadata in the cache.
            pub metadata_bytes: u64,
        }

        impl Counters {
            /// The numbers as they are now.
            pub(crate) fn snapshot(&self) -> ReadStatistics {
                ReadStatistics {
                    $($name: self.$name.load(Ordering::Relaxed),)*
                    ..ReadStatistics::default()
                }
            }
        }

        impl ReadStatistics {
            /// Every counter with its name, for listings.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Reads of file content.
    requests,
    /// Bytes of file content that were handed out.
    served_bytes,
    /// Reads of a device.
    device_reads,
    /// Bytes read from devices.
    device_bytes,
    /// Bytes handed out as they lie on the device.
    plain_bytes,
    /// Extents of which a part was wanted, and the cache had them.
    hits,
    /// Extents of which a part was wanted, and the cache had nothing of them.
    misses,
    /// Parts of extents of the packed inode that need not be decoded again: whoever keeps it had them.
    retrieved,
    /// Bytes that came out of decoders.
    decoded_bytes,
    /// Extents decoded over their own encoded bytes, at the end of the reader's buffer.
    decodes_in_place,
    /// Extents decoded straight into the reader's buffer, from encoded bytes elsewhere.
    decodes_direct,
    /// Extents decoded into a small buffer of the worker.
    decodes_buffer,
    /// Extents whose unwanted front ran through a rolling window.
    decodes_rolling,
    /// Extents decoded into a scratch mapping.
    decodes_vmap,
    /// Pieces of extents decoded by a suspended stream.
    decodes_stream,
    /// Extents decoded whole to be kept decoded.
    decodes_kept,
    /// Runs of extents, or parts of runs, of which another thread decoded a half.
    fanned_out,
    /// Extents wanted whole: candidates for decoding in place.
    whole_extents,
    /// Whole extents that a kernel could decode in place: the margin is left in their last page.
    whole_extents_with_page_margin,
    /// Reads of pinned content.
    pinned_hits,
}

/// Raises a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
