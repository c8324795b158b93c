//! The settings that are tried, a table that a person can read.

/// Options of `mkfs`, from the quickest to read to the smallest, about.
pub const SETTINGS: [&str; 14] = [
    "-znone",
    "-zlz4 -C64K",
    "-zlz4hc,9 -C4K",
    "-zlz4hc,9 -C16K",
    "-zlz4hc,9 -C64K",
    "-zlz4hc,12 -C16K -Efragments,dedupe,ztailpacking",
    "-zlz4hc,12 -C64K -Efragments,dedupe,ztailpacking",
    "-zlz4hc,12 -C1M -Eall-fragments,dedupe,ztailpacking",
    "-zdeflate,9 -C32K -Efragments,dedupe,ztailpacking",
    "-zzstd,3 -C64K -Efragments,dedupe,ztailpacking",
    "-zzstd,9 -C16K -Efragments,dedupe,ztailpacking",
    "-zzstd,15 -C128K -Eall-fragments,dedupe,ztailpacking",
    "-zlzma,6 -C64K -Efragments,dedupe,ztailpacking",
    "-zlzma,9 -C1M -Eall-fragments,dedupe,ztailpacking --order=kind --compress-directories",
];

/// Options of `mkfs` for the latest kernels, which call these features experimental. They are tried only for a kernel that
/// is told.
pub const LATEST: [&str; 3] = [
    "-zlz4hc,12 -C64K -E48bit",
    "-zzstd,15 -C64K -E48bit",
    "-zlzma,9 -C1M -Eall-fragments,dedupe,dot-omitted -m32K --order=kind --compress-directories",
];
