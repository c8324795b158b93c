//! The segments of a log as a drawing: a cell for each.

use std::fmt::Write;

use anteros_log::layout::checkpoint::HeadKind;
use anteros_log::{SegmentState, Use};
use anteros_trace::escape;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #222 } .title { font-weight: bold }
.free { fill: none; stroke: #bbb; stroke-width: .5 } .open { stroke: #222; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .free { stroke: #555 } .open { stroke: #eee } }";

/// Nodes are blue, data green, what cleaning moved brown, what is packed red.
const COLOURS: [&str; HeadKind::ALL.len()] = [
    "#12485c", "#1b6e8c", "#4aa3c4", "#4d7f2f", "#6fae45", "#b07d2b", "#b3402a", "#7a5aa8",
    "#d98a7c", "#8c6d5a",
];

/// From one cell to the next, and how much of that a cell takes, in units of the drawing.
const STEP: usize = 12;
const CELL: usize = 10;
/// Cells of a row.
const COLUMNS: usize = 64;
/// States where cells begin.
const TOP: usize = 30;
/// From one entry of the legend to the next: across, and down.
const LEGEND_STEP: (usize, usize) = (190, 18);
const LEGEND_COLUMNS: usize = 4;
/// Opacity by which what is least valid is still seen.
const FAINTEST: f64 = 0.15;

/// Draws segments as SVG under a title.
pub fn figure(segments: &[SegmentState], title: &str) -> String {
    let rows = segments.len().div_ceil(COLUMNS);
    let legend_top = TOP + rows * STEP + 12;
    // All kinds, and some words about the rest.
    let legend_rows = (HeadKind::ALL.len() + 3).div_ceil(LEGEND_COLUMNS);
    let (width, height) = (COLUMNS * STEP, legend_top + legend_rows * LEGEND_STEP.1 + 8);
    let title = escape(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\n</style>\n<text class=\"title\" x=\"0\" y=\"16\">{title}</text>\n"
    );
    for (number, segment) in segments.iter().enumerate() {
        cell(&mut svg, number, segment);
    }
    legend(&mut svg, legend_top);
    svg + "</svg>\n"
}

fn colour(kind: HeadKind) -> &'static str {
    COLOURS[usize::from(kind.to_raw())]
}

fn cell(svg: &mut String, number: usize, segment: &SegmentState) {
    let (x, y) = (number % COLUMNS * STEP, TOP + number / COLUMNS * STEP);
    let _ = write!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" "
    );
    let kind = segment.kind.name();
    let _ = match segment.state {
        Use::Free => writeln!(svg, "class=\"free\"><title>{number}: free</title></rect>"),
        state => writeln!(
            svg,
            "class=\"{}\" fill=\"{}\" fill-opacity=\"{:.2}\"><title>{number}: {kind}, {0}, {} valid</title></rect>",
            state.name(),
            colour(segment.kind),
            FAINTEST + (1.0 - FAINTEST) * segment.share(),
            segment.valid,
        ),
    };
}

fn legend(svg: &mut String, top: usize) {
    let kinds = HeadKind::ALL.map(|kind| (format!("fill=\"{}\"", colour(kind)), kind.name()));
    let others = [
        ("class=\"open\" fill=\"none\"".to_owned(), "being filled"),
        ("class=\"free\"".to_owned(), "free"),
        (
            "fill=\"#6fae45\" fill-opacity=\"0.15\"".to_owned(),
            "pale: little of it is valid",
        ),
    ];
    for (place, (look, text)) in kinds.into_iter().chain(others).enumerate() {
        let (x, y) = (
            place % LEGEND_COLUMNS * LEGEND_STEP.0,
            top + place / LEGEND_COLUMNS * LEGEND_STEP.1,
        );
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" {look}/><text x=\"{}\" y=\"{}\">{text}</text>",
            x + 14,
            y + 9,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_has_a_cell() {
        let segment = |kind, state, valid| SegmentState { kind, state, valid };
        let segments = [
            segment(HeadKind::WarmData, Use::Full, 511),
            segment(HeadKind::HotNode, Use::Open, 0),
            segment(HeadKind::WarmData, Use::Free, 0),
        ];
        let svg = figure(&segments, "a <log>");
        assert!(svg.contains("a &lt;log&gt;"));
        assert!(svg.contains("class=\"full\" fill=\"#6fae45\" fill-opacity=\"1.00\"><title>0: warm data, full, 511 valid<"));
        assert!(svg.contains("class=\"open\" fill=\"#12485c\" fill-opacity=\"0.15\"><title>1: hot nodes, open, 0 valid<"));
        assert!(svg.contains("class=\"free\"><title>2: free<"));
        let cells = svg.matches("<rect").count();
        assert_eq!(cells, segments.len() + HeadKind::ALL.len() + 3);
    }
}
