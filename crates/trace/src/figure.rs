//! A report as a drawing, after Figure 4 of the bFUSE paper: stacked bars of the sizes, the locality and the modes of
//! reads and writes. Its fourth panel, the types of blocks, needs a trace of a block device.

use std::fmt::Write;

use crate::report::{CLASS_NAMES, Flow, Report};

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #222 } .title { font-weight: bold } .part { stroke: #fff; stroke-width: .5 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .part { stroke: #16191b } }";

/// From the least to the most, as many as there are classes.
const COLOURS: [&str; CLASS_NAMES.len()] = [
    "#c0662a", "#d9a441", "#b9b34a", "#8fb05a", "#6a9f8a", "#4aa3c4", "#1b6e8c", "#12485c",
];

/// States where bars begin, how long those are that stand for all, and how high, in units of the drawing.
const BARS_AT: f64 = 60.0;
const BARS_LENGTH: f64 = 600.0;
const BAR_HEIGHT: f64 = 22.0;
const WIDTH: f64 = 800.0;
/// From the top of one panel to that of the next, and from there to its bars and its legend.
const PANEL_HEIGHT: f64 = 120.0;
const TO_BARS: f64 = 22.0;
const TO_LEGEND: f64 = 84.0;
const TOP: f64 = 40.0;

/// A name of a part and how much it is of the reads, or the writes.
type Part = (&'static str, fn(&Flow, usize) -> u64);

struct Panel {
    title: &'static str,
    parts: Vec<Part>,
}

/// Draws a report as SVG under a title.
pub fn figure(report: &Report, title: &str) -> String {
    let panels = [
        Panel {
            title: "(a) IO size",
            parts: CLASS_NAMES
                .iter()
                .map(|name| (*name, size as fn(&Flow, usize) -> u64))
                .collect(),
        },
        Panel {
            title: "(b) locality",
            parts: vec![
                ("random", |flow, _| flow.tally.count - flow.tally.sequential),
                ("sequential", |flow, _| flow.tally.sequential),
            ],
        },
        Panel {
            title: "(c) IO modes",
            parts: vec![
                ("synchronous", |flow, _| flow.tally.synchronous),
                ("buffered", |flow, _| flow.tally.buffered()),
            ],
        },
    ];
    let height = TOP + PANEL_HEIGHT * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{0}</title>\n<style>\n{STYLE}\n</style>\n<text class=\"title\" x=\"0\" y=\"16\">{0}</text>\n",
        escape(title)
    );
    for (index, panel) in panels.iter().enumerate() {
        panel.draw(&mut svg, report, TOP + PANEL_HEIGHT * index as f64);
    }
    svg + "</svg>\n"
}

fn size(flow: &Flow, class: usize) -> u64 {
    flow.sizes[class].count
}

impl Panel {
    fn draw(&self, svg: &mut String, report: &Report, top: f64) {
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{}\">{}</text>",
            top + 12.0,
            self.title
        );
        for (row, (name, flow)) in [("R", &report.reads), ("W", &report.writes)]
            .into_iter()
            .enumerate()
        {
            let top = top + TO_BARS + (BAR_HEIGHT + 4.0) * row as f64;
            self.bar(svg, name, flow, top);
        }
        for (index, (name, _)) in self.parts.iter().enumerate() {
            let step = BARS_LENGTH / self.parts.len() as f64;
            let (at, top) = (BARS_AT + step * index as f64, top + TO_LEGEND);
            let _ = writeln!(
                svg,
                "<rect x=\"{at}\" y=\"{top}\" width=\"10\" height=\"10\" fill=\"{}\"/>\
                 <text x=\"{}\" y=\"{}\">{}</text>",
                self.colour(index),
                at + 14.0,
                top + 9.5,
                escape(name),
            );
        }
    }

    /// A bar of the shares, with the number of accesses at its end.
    fn bar(&self, svg: &mut String, name: &str, flow: &Flow, top: f64) {
        let text_at = top + BAR_HEIGHT * 0.7;
        let _ = writeln!(svg, "<text x=\"30\" y=\"{text_at}\">{name}</text>");
        let all = flow.tally.count;
        let mut at = BARS_AT;
        for (index, (part, of)) in self.parts.iter().enumerate() {
            let count = of(flow, index);
            if count == 0 {
                continue;
            }
            let share = count as f64 / all as f64;
            let width = BARS_LENGTH * share;
            let _ = writeln!(
                svg,
                "<rect class=\"part\" x=\"{at:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{BAR_HEIGHT}\" fill=\"{}\">\
                 <title>{}: {count}, {:.1} %</title></rect>",
                self.colour(index),
                escape(part),
                share * 100.0,
            );
            at += width;
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{text_at}\">{all}</text>",
            BARS_AT + BARS_LENGTH + 8.0
        );
    }

    /// Two parts have the first and the last colour.
    fn colour(&self, part: usize) -> &'static str {
        let step = (COLOURS.len() - 1) / (self.parts.len() - 1);
        COLOURS[part * step]
    }
}

/// Text as XML, which knows no control characters.
pub fn escape(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Tally;

    /// Everything that is drawn of 3 random and 1 sequential writes, one of them synced.
    #[test]
    fn bars_are_as_long_as_their_shares() {
        let mut report = Report::default();
        report.writes.tally = Tally {
            count: 4,
            bytes: 5 << 20,
            sequential: 1,
            synchronous: 1,
        };
        report.writes.sizes[0].count = 1;
        report.writes.sizes[7].count = 3;
        let svg = figure(&report, "a < b & \u{1}");
        let drawn: Vec<_> = svg
            .lines()
            .filter(|line| line.contains("class=\"part\""))
            .map(|line| {
                let of = |name: &str| {
                    let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
                    rest.split('"').next().unwrap().parse::<f64>().unwrap()
                };
                let (_, told) = line.split_once("<title>").unwrap();
                (of("x"), of("width"), told.split(':').next().unwrap())
            })
            .collect();
        let wanted = [
            (60.0, 150.0, "4K"),
            (210.0, 450.0, "&gt;256K"),
            (60.0, 450.0, "random"),
            (510.0, 150.0, "sequential"),
            (60.0, 150.0, "synchronous"),
            (210.0, 450.0, "buffered"),
        ];
        assert_eq!(drawn, wanted, "{svg}");
        assert!(svg.contains("a &lt; b &amp; \u{fffd}"), "{svg}");
        let counts = svg.matches(">4</text>").count();
        assert_eq!((counts, svg.matches(">0</text>").count()), (3, 3), "{svg}");
    }
}
