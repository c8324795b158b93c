//! Sizes that several parts of serving share.

/// The longest front that is decoded into a worker's buffer; longer ones of LZ4 go through the rolling
/// window.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Sizes what readers ask for: pages, of this size or a multiple of it.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Encoded bytes that a run gathers, besides those that lie in the reader's buffer. A single larger
/// pcluster is a run of its own.
pub(crate) const RUN_BYTES: usize = 128 << 10;

/// Bytes decoded last that a suspended decoder keeps: readers that want neighbouring parts come in any
/// order.
pub(crate) const RECENT_BYTES: usize = 512 << 10;

/// As many bytes as the kernel asks for at once for one reader in order, and some: what it reads ahead, twice. So many are
/// kept for such a reader.
pub(crate) const READ_AHEAD_BYTES: usize = 3 * RECENT_BYTES;

/// Bytes that an entry of the cache takes besides its content.
pub(crate) const ENTRY_BYTES: usize = 384;
