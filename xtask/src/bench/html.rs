//! The page of a report: one file, its plots drawn in SVG within, that nothing outside is needed to read.
//!
//! Each metric has a plot: per subject a bar of anteros above a bar of the peer, as long as the median, with a
//! whisker from the least to the greatest figure. A table below each plot has the numbers and the commands.

use std::fmt::Write;

use super::{Comparison, Report, Side};

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
.ours { fill: #1b6e8c } .peer { fill: #b9c4c9 } .whisker { stroke: #222; stroke-width: 1.5 } text { fill: #222 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem }
td, th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left }
code { font-size: 12px; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) {
  body { background: #16191b; color: #ddd } text { fill: #ddd } .whisker { stroke: #ddd }
  .peer { fill: #566 } .ours { fill: #4aa3c4 } td, th { border-color: #333 }
}";

/// Where the bars begin and how long the longest is, in units of the drawing.
const BARS_AT: f64 = 240.0;
const BAR_LENGTH_MAX: f64 = 520.0;
/// The height of the two bars of a subject with the space below them.
const SUBJECT_HEIGHT: f64 = 44.0;

/// The page, as HTML.
pub(super) fn page(report: &Report) -> String {
    let name = escape(&report.name);
    let mut body = format!(
        "<h1>{name}</h1>\n<p>{}<br>\n",
        escape(&report.machine.to_string())
    );
    body += &report
        .versions
        .iter()
        .map(|version| escape(version))
        .collect::<Vec<_>>()
        .join("<br>\n");
    body += "</p>\n<p>Shorter is better. The upper bar of each pair is anteros, the lower one the peer; a bar is the median, \
             its whisker goes from the least to the greatest figure. A ratio under one favours anteros.</p>\n";
    for (metric, group) in report.by_metric() {
        body += &format!(
            "<h2>{}</h2>\n{}{}",
            escape(metric),
            plot(&group),
            table(&group)
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>anteros: {name}</title>\n\
         <style>\n{STYLE}\n</style>\n{body}</html>\n"
    )
}

fn plot(group: &[&Comparison]) -> String {
    let longest = group
        .iter()
        .flat_map(|one| [one.ours.greatest(), one.peer.greatest()])
        .fold(0.0, f64::max);
    let height = SUBJECT_HEIGHT * group.len() as f64;
    let mut svg = format!("<svg viewBox=\"0 0 900 {height}\" role=\"img\">\n");
    for (index, comparison) in group.iter().enumerate() {
        let top = SUBJECT_HEIGHT * index as f64;
        let label = escape(&comparison.subject);
        svg += &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>\n",
            BARS_AT - 10.0,
            top + 22.0
        );
        svg += &bar("ours", &comparison.ours, comparison, longest, top + 2.0);
        svg += &bar("peer", &comparison.peer, comparison, longest, top + 19.0);
    }
    svg + "</svg>\n"
}

/// A bar of 16 units with its whisker and its figure in words.
fn bar(class: &str, side: &Side, comparison: &Comparison, longest: f64, top: f64) -> String {
    let at = |figure: f64| BARS_AT + BAR_LENGTH_MAX * figure / longest;
    let (end, least, greatest, middle) = (
        at(side.median()),
        at(side.least()),
        at(side.greatest()),
        top + 8.0,
    );
    format!(
        "<rect class=\"{class}\" x=\"{BARS_AT}\" y=\"{top}\" width=\"{:.1}\" height=\"16\"/>\
         <line class=\"whisker\" x1=\"{least:.1}\" x2=\"{greatest:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\
         <text x=\"{:.1}\" y=\"{}\">{}</text>\n",
        end - BARS_AT,
        greatest.max(end) + 6.0,
        top + 12.5,
        comparison.unit.show(side.median()),
    )
}

fn table(group: &[&Comparison]) -> String {
    let mut table =
        "<table>\n<tr><th><th>anteros<th>min…max<th>peer<th>min…max<th>runs<th>ratio\n".to_owned();
    let mut commands = String::new();
    for one in group {
        let show = |side: &Side| {
            let shown = |figure| one.unit.show(figure);
            format!(
                "<td>{}<td>{}…{}",
                shown(side.median()),
                shown(side.least()),
                shown(side.greatest())
            )
        };
        let (ours, peer, runs) = (show(&one.ours), show(&one.peer), one.ours.figures.len());
        let subject = escape(&one.subject);
        let _ = writeln!(
            table,
            "<tr><td>{subject}{ours}{peer}<td>{runs}<td>{:.3}",
            one.ratio()
        );
        let _ = writeln!(
            commands,
            "<p><code>{}<br>{}</code></p>",
            escape(&one.ours.command),
            escape(&one.peer.command)
        );
    }
    format!("{table}</table>\n<details><summary>commands</summary>\n{commands}</details>\n")
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
