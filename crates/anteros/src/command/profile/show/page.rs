//! A page of HTML with a map of each image: what was read, when, and what came along unused. It needs no other file.

use std::fmt::Write;

use anteros_trace::escape;

use super::shown::Shown;
use super::survey::{Fetch, Survey};
use crate::output;

const STYLE: &str = "\
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
h2 { font-size: 1.1em } td, th { text-align: right; padding: .1em 1em } td:first-child { text-align: left }
svg { width: 100%; max-width: 64em } .none { fill: #eee } .unused { fill: #d98a2b }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #16191b } .none { fill: #2a2f33 } }";

/// Cells of a row, and rows at most, of the map of a device.
const COLUMNS: u64 = 128;
const ROWS_MAX: u64 = 64;
/// The least that a cell stands for.
const CELL_BYTES_MIN: u64 = 4096;
/// From one cell to the next, and how much of that a cell takes, in units of the drawing.
const STEP: u64 = 8;
const CELL: u64 = 7;
/// From what is read first to what is read last.
const COLOURS: [&str; 6] = [
    "#12485c", "#1b6e8c", "#2f8fae", "#4aa3c4", "#7dbdd6", "#a9d5e6",
];

/// A name of a number, and the number as people read it.
pub type Row = (&'static str, fn(&Shown) -> String);

/// The numbers that are told of each image.
pub const ROWS: [Row; 11] = [
    ("ranges", |shown| output::count(shown.survey.ranges)),
    ("not there any more", |shown| output::count(shown.missing)),
    ("  of these, changed", |shown| output::count(shown.changed)),
    ("bytes read", |shown| output::bytes(shown.survey.bytes)),
    ("pages of 4K", |shown| output::count(shown.survey.pages)),
    ("extents", |shown| output::count(shown.survey.extents)),
    ("bytes of the device", |shown| {
        output::bytes(shown.survey.device_bytes)
    }),
    ("requests, in order", |shown| {
        output::count(shown.survey.requests)
    }),
    ("runs of blocks", |shown| output::count(shown.survey.runs)),
    ("bytes decompressed", |shown| {
        output::bytes(shown.survey.decoded_bytes)
    }),
    ("DAR", |shown| {
        let dar = shown.survey.dar();
        dar.map_or_else(|| "-".into(), |dar| format!("{dar:.2}"))
    }),
];

/// A part of a device, and what was fetched of it.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// The number of the first fetch, counted from 1; 0 if there is none.
    first: usize,
    /// Bytes that were fetched.
    fetched: f64,
    /// Bytes of these of which nobody wanted what they decode to.
    unused: f64,
}

/// Makes a page under a title.
pub fn page(all: &[Shown], title: &str) -> String {
    let title = escape(title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    table(&mut html, all);
    html += "<p>Each cell is a part of the image. What is read first is dark, what is read last is light; orange is the share \
             that is fetched and decompressed, but not wanted.</p>\n";
    for shown in all {
        for (device, &bytes) in shown.survey.devices.iter().enumerate() {
            let name = match device {
                0 => escape(&shown.name),
                device => format!("{}, device {device}", escape(&shown.name)),
            };
            map(&mut html, &shown.survey, device, bytes, &name);
        }
    }
    html + "</body>\n</html>\n"
}

fn table(html: &mut String, all: &[Shown]) {
    *html += "<table>\n<tr><th></th>";
    for shown in all {
        let _ = write!(html, "<th>{}</th>", escape(&shown.name));
    }
    *html += "</tr>\n";
    for (name, cell) in ROWS {
        let _ = write!(html, "<tr><td>{name}</td>");
        for shown in all {
            let _ = write!(html, "<td>{}</td>", escape(&cell(shown)));
        }
        *html += "</tr>\n";
    }
    *html += "</table>\n";
}

fn map(html: &mut String, survey: &Survey, device: usize, bytes: u64, name: &str) {
    let cell_bytes = bytes
        .div_ceil(COLUMNS * ROWS_MAX)
        .next_multiple_of(CELL_BYTES_MIN)
        .max(CELL_BYTES_MIN);
    let count = bytes.div_ceil(cell_bytes);
    let rows = count.div_ceil(COLUMNS);
    let _ = write!(
        html,
        "<h2>{name}</h2>\n<p>{} a cell</p>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\">\n<title>{name}</title>\n",
        output::bytes(cell_bytes),
        COLUMNS * STEP,
        rows.max(1) * STEP,
    );
    let cells = cells(&survey.fetches, device, cell_bytes, count as usize);
    for (number, cell) in cells.iter().enumerate() {
        draw(html, cell, number as u64, cell_bytes, survey.fetches.len());
    }
    *html += "</svg>\n";
}

fn cells(fetches: &[Fetch], device: usize, cell_bytes: u64, count: usize) -> Vec<Cell> {
    let mut cells = vec![Cell::default(); count];
    for (number, fetch) in fetches.iter().enumerate() {
        if fetch.device.map(usize::from) != Some(device) {
            continue;
        }
        let unused = 1.0 - fetch.wanted as f64 / fetch.decoded.max(1) as f64;
        let mut at = fetch.start;
        while at < fetch.end {
            let next = (at / cell_bytes + 1) * cell_bytes;
            let bytes = (next.min(fetch.end) - at) as f64;
            // What lies behind the end of a device is none of its cells.
            let Some(cell) = cells.get_mut((at / cell_bytes) as usize) else {
                break;
            };
            if cell.first == 0 {
                cell.first = number + 1;
            }
            cell.fetched += bytes;
            cell.unused += bytes * unused;
            at = next;
        }
    }
    cells
}

fn draw(html: &mut String, cell: &Cell, number: u64, cell_bytes: u64, fetches: usize) {
    let (x, y) = (number % COLUMNS * STEP, number / COLUMNS * STEP);
    if cell.first == 0 {
        let _ = writeln!(
            html,
            "<rect class=\"none\" x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\"/>"
        );
        return;
    }
    let colour = COLOURS[(cell.first - 1) * COLOURS.len() / fetches.max(cell.first)];
    // Two extents may share a block, which counts for both.
    let share = (cell.fetched / cell_bytes as f64).min(1.0);
    let unused = cell.unused / cell.fetched.max(1.0);
    let _ = writeln!(
        html,
        "<g><title>byte {}: fetch {} of {fetches}; {:.0} % is fetched, {:.0} % of that is not wanted</title>\
         <rect class=\"none\" x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\"/>\
         <rect fill=\"{colour}\" x=\"{x}\" y=\"{y}\" width=\"{:.2}\" height=\"{CELL}\"/>\
         <rect class=\"unused\" x=\"{x}\" y=\"{y}\" width=\"{:.2}\" height=\"{:.2}\"/></g>",
        number * cell_bytes,
        cell.first,
        100.0 * share,
        100.0 * unused,
        CELL as f64 * share,
        CELL as f64 * share,
        CELL as f64 * unused,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> Shown {
        let fetch = Fetch {
            device: Some(0),
            start: 4096,
            end: 12_288,
            decoded: 40_000,
            wanted: 10_000,
        };
        let survey = Survey {
            fetches: vec![
                fetch,
                Fetch {
                    end: u64::MAX,
                    ..fetch
                },
            ],
            devices: vec![40_960],
            ..Survey::default()
        };
        Shown {
            name: name.into(),
            survey,
            missing: 0,
            changed: 0,
        }
    }

    #[test]
    fn a_page_has_a_cell_for_each_block() {
        let page = page(&[shown("image")], "profile");
        assert_eq!(page.matches("<g>").count(), 9, "{page}");
        assert!(
            page.contains("byte 4096: fetch 1 of 2; 100 % is fetched, 75 %"),
            "{page}"
        );
        assert!(page.contains("byte 12288: fetch 2 of 2"), "{page}");
    }

    #[test]
    fn names_are_no_markup() {
        let page = page(&[shown("<script>&\"")], "</title>");
        assert!(!page.contains("<script>"), "{page}");
        assert_eq!(page.matches("</title>").count(), 1 + 1 + 9, "{page}");
    }
}
