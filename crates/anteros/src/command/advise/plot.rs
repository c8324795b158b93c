//! A drawing of all that was tried: size from left to right, speed of reading from below.

use std::fmt::Write;

use super::row::Row;

/// A drawing in a terminal has so many columns and lines.
const COLUMNS: usize = 60;
const LINES: usize = 14;

/// The area of an SVG drawing that has the points, in its units.
const LEFT: f64 = 90.0;
const TOP: f64 = 50.0;
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 320.0;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #222 } .title { font-weight: bold } .axis { stroke: #888 }
circle { fill: #8fb05a } .front { fill: #1b6e8c } .best { fill: #c0662a }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }";

/// Places of points between 0 and 1: sizes as they are, speeds by their logarithm.
struct Scale {
    size: (f64, f64),
    rate: (f64, f64),
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let range = |values: &dyn Fn(&Row) -> f64| {
            let values = rows.iter().map(values);
            values.fold((f64::MAX, f64::MIN), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        Self {
            size: range(&|row| row.bytes as f64),
            rate: range(&|row| row.read_rate.ln()),
        }
    }

    fn place(&self, row: &Row) -> (f64, f64) {
        let part = |(low, high): (f64, f64), value: f64| match high > low {
            true => (value - low) / (high - low),
            false => 0.5,
        };
        (
            part(self.size, row.bytes as f64),
            part(self.rate, row.read_rate.ln()),
        )
    }
}

/// Draws rows as text, each as its letter.
pub fn text(rows: &[Row]) -> String {
    let scale = Scale::of(rows);
    let mut cells = vec![[' '; COLUMNS]; LINES];
    for row in rows {
        let (x, y) = scale.place(row);
        let column = (x * (COLUMNS - 1) as f64).round() as usize;
        let line = LINES - 1 - (y * (LINES - 1) as f64).round() as usize;
        // Where several would stand in one place, the next ones go beside.
        let free = (column..COLUMNS).chain((0..column).rev());
        let free = free.into_iter().find(|&at| cells[line][at] == ' ');
        if let Some(at) = free {
            cells[line][at] = row.letter;
        }
    }
    let mut drawn = String::from("  quicker to read\n");
    for line in cells {
        let line: String = line.iter().collect();
        let _ = writeln!(drawn, "  |{}", line.trim_end());
    }
    let _ = writeln!(drawn, "  +{}> larger", "-".repeat(COLUMNS));
    drawn
}

/// Draws rows as SVG under a title.
pub fn svg(rows: &[Row], title: &str) -> String {
    let scale = Scale::of(rows);
    let (width, height) = (LEFT + WIDTH + 110.0, TOP + HEIGHT + 60.0);
    let title = anteros_trace::escape(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>\n{STYLE}\n</style>\n<text class=\"title\" x=\"0\" y=\"16\">{title}</text>\n\
         <path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{1}H{0}\"/>\n\
         <text x=\"0\" y=\"{TOP}\">read, MB/s</text><text x=\"{LEFT}\" y=\"{2}\">size, MiB</text>\n",
        LEFT + WIDTH,
        TOP + HEIGHT,
        TOP + HEIGHT + 36.0,
    );
    for row in rows {
        let (x, y) = scale.place(row);
        let (x, y) = (
            LEFT + 10.0 + x * (WIDTH - 20.0),
            TOP + HEIGHT - 10.0 - y * (HEIGHT - 20.0),
        );
        let class = match (row.is_best, row.is_front) {
            (true, _) => "best",
            (_, true) => "front",
            _ => "other",
        };
        let (size, rate) = (row.bytes as f64 / f64::from(1 << 20), row.read_rate / 1e6);
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{0}: {size:.1} MiB, {rate:.0} MB/s\
             </title></circle><text x=\"{1:.1}\" y=\"{2:.1}\">{0}</text>",
            row.settings,
            x + 8.0,
            y + 4.0,
        );
    }
    svg + "</svg>\n"
}
