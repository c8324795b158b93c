//! The target `trace`.

use anteros_trace::{Analysis, Item, MAGIC, Report, Usage, figure, read};

/// The most that a block holds.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Reads the bytes as a record of accesses, and as a block of one with its checksum: what is made up seldom has the
/// right one. What is told adds up.
pub fn trace(input: &[u8]) {
    tell(input);
    tell(&framed(&input[..input.len().min(BLOCK_BYTES_MAX)]));
}

/// A record of one block.
fn framed(payload: &[u8]) -> Vec<u8> {
    let version = 1_u32.to_le_bytes();
    let len = (payload.len() as u32).to_le_bytes();
    let checksum = crc32c::crc32c(payload).to_le_bytes();
    [&MAGIC[..], &version, &[0; 12], &len, &checksum, payload].concat()
}

fn tell(record: &[u8]) {
    let mut analysis = Analysis::default();
    let mut accesses = 0;
    let result = read(record, &mut |item| {
        accesses += u64::from(matches!(item, Item::Access(_)));
        analysis.take(item);
    });
    if let Err(error) = result {
        assert!(!error.to_string().is_empty());
    }
    let report = analysis.report();
    assert_eq!(report.accesses, accesses);
    adds_up(&report);
    assert!(figure(&report, "").ends_with("</svg>\n"));
}

fn adds_up(report: &Report) {
    let mut answered = report.fsyncs.count + report.fsyncs.failed;
    for flow in [&report.reads, &report.writes] {
        let tally = flow.tally;
        assert!(tally.sequential <= tally.count && tally.synchronous <= tally.count);
        let sorted: u64 = flow.sizes.iter().map(|class| class.count).sum();
        assert_eq!(sorted, tally.count);
        answered += tally.count + flow.failed;
    }
    assert_eq!(answered, report.accesses);
    let files = report.files.iter().map(|file| &file.usage);
    let processes = report.processes.iter().map(|process| &process.usage);
    same(report, files);
    same(report, processes);
}

/// The parts are the whole.
fn same<'a>(report: &Report, parts: impl Iterator<Item = &'a Usage>) {
    let mut sums = [0; 5];
    for Usage {
        reads,
        writes,
        fsyncs,
    } in parts
    {
        let of = [
            reads.count,
            writes.count,
            writes.sequential,
            writes.synchronous,
            *fsyncs,
        ];
        sums.iter_mut().zip(of).for_each(|(sum, part)| *sum += part);
    }
    let Report { reads, writes, .. } = report;
    let whole = [
        reads.tally.count,
        writes.tally.count,
        writes.tally.sequential,
        writes.tally.synchronous,
        report.fsyncs.count,
    ];
    assert_eq!(sums, whole);
}
