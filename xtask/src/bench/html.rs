//! The page of a report: one file, its plots drawn in SVG within, that nothing outside is needed to read.
//!
//! Each metric has a plot. Per subject there is a bar of anteros above the bars of its peers, as long as the median,
//! with a whisker from the least to the greatest figure. Where the subjects lie on a scale, each side is a curve. A
//! table below each plot has the numbers and the commands.

use std::fmt::Write;

use super::goal::{self, Goal};
use super::report::{Comparison, Report, Side, Spread, Unit};

const STYLE: &str = "\
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
.ours { fill: #1b6e8c } .peer { fill: #b9c4c9 } .whisker, .axis { stroke: #222; stroke-width: 1.5 } text { fill: #222 }
.curve { fill: none; stroke-width: 2.5 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 1rem }
td, th { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left }
code { font-size: 12px; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) {
  body { background: #16191b; color: #ddd } text { fill: #ddd } .whisker, .axis { stroke: #ddd }
  .peer { fill: #566 } .ours { fill: #4aa3c4 } td, th { border-color: #333 }
}";

/// States where the bars begin and how long the longest is, in units of the drawing.
const BARS_AT: f64 = 320.0;
const BAR_LENGTH_MAX: f64 = 460.0;
/// The height of a bar with the space below it, of a subject's name, and of the space below a subject.
const BAR_HEIGHT: f64 = 17.0;
const NAME_HEIGHT: f64 = 18.0;
const GAP_HEIGHT: f64 = 10.0;

/// States where curves are drawn: from the left and the bottom, and how far.
const CURVES_LEFT: f64 = 60.0;
const CURVES_BOTTOM: f64 = 300.0;
const CURVES_WIDTH: f64 = 620.0;
const CURVES_HEIGHT: f64 = 270.0;
/// Anteros has the first colour.
const CURVE_COLOURS: [&str; 6] = [
    "#1b6e8c", "#c0662a", "#6a8f3c", "#8a5aa8", "#b08d1e", "#777777",
];

/// The page, as HTML.
pub(super) fn page(report: &Report) -> String {
    let name = escape(&report.name);
    let head: Vec<String> = std::iter::once(&report.machine.to_string())
        .chain(&report.versions)
        .chain(&report.notes)
        .map(|line| escape(line))
        .collect();
    let mut body = format!("<h1>{name}</h1>\n<p>{}</p>\n", head.join("<br>\n"));
    body += "<p>The upper bar of each group is anteros, those below are its peers; a bar is the median, its whisker \
             goes from the least to the greatest figure. A ratio is the figure of anteros in units of the peer's; a \
             share says how fast a side is in units of the one that the column names.</p>\n";
    for (metric, group) in report.by_metric() {
        let (metric, direction) = (escape(metric), group[0].unit.direction());
        body += &format!("<h2>{metric}</h2>\n<p>{direction}</p>\n");
        body += &plot(&group);
        body += &table(&group);
    }
    body += &goals(&report.goals);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>anteros: {name}</title>\n\
         <style>\n{STYLE}\n</style>\n{body}</html>\n"
    )
}

fn plot(group: &[&Comparison]) -> String {
    let spreads = group
        .iter()
        .flat_map(|one| one.sides.iter().filter_map(Side::spread));
    let longest = spreads.map(|spread| spread.greatest).fold(0.0, f64::max);
    if group.iter().all(|one| one.at.is_some()) {
        curves(group, longest)
    } else {
        bars(group, longest)
    }
}

fn bars(group: &[&Comparison], longest: f64) -> String {
    let (mut drawn, mut top) = (String::new(), 0.0);
    for comparison in group {
        let subject = escape(&comparison.subject);
        let _ = writeln!(drawn, "<text x=\"0\" y=\"{}\">{subject}</text>", top + 13.0);
        top += NAME_HEIGHT;
        for (index, side) in comparison.sides.iter().enumerate() {
            let class = if index == 0 { "ours" } else { "peer" };
            drawn += &bar(class, side, comparison.unit, longest, top);
            top += BAR_HEIGHT;
        }
        top += GAP_HEIGHT;
    }
    format!("<svg viewBox=\"0 0 900 {top}\" role=\"img\">\n{drawn}</svg>\n")
}

/// A bar of 16 units with its name, its whisker and its figure in words.
fn bar(class: &str, side: &Side, unit: Unit, longest: f64, top: f64) -> String {
    let (name, text_at) = (escape(&side.name), top + 12.5);
    let label = format!(
        "<text x=\"{}\" y=\"{text_at}\" text-anchor=\"end\">{name}</text>",
        BARS_AT - 10.0
    );
    let Some(spread) = side.spread() else {
        return format!("{label}<text x=\"{BARS_AT}\" y=\"{text_at}\">failed</text>\n");
    };
    let at = |figure: f64| BARS_AT + BAR_LENGTH_MAX * figure / longest.max(f64::MIN_POSITIVE);
    let (end, least, greatest, middle) = (
        at(spread.median),
        at(spread.least),
        at(spread.greatest),
        top + 8.0,
    );
    format!(
        "{label}<rect class=\"{class}\" x=\"{BARS_AT}\" y=\"{top}\" width=\"{:.1}\" height=\"16\"/>\
         <line class=\"whisker\" x1=\"{least:.1}\" x2=\"{greatest:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\
         <text x=\"{:.1}\" y=\"{text_at}\">{}</text>\n",
        end - BARS_AT,
        greatest + 6.0,
        unit.show(spread.median),
    )
}

/// A curve per side through its medians, with the names of the sides at its right.
fn curves(group: &[&Comparison], highest: f64) -> String {
    let places = || group.iter().filter_map(|one| one.at);
    let (first, last) = (
        places().fold(f64::INFINITY, f64::min),
        places().fold(f64::NEG_INFINITY, f64::max),
    );
    let across =
        |at: f64| CURVES_LEFT + CURVES_WIDTH * (at - first) / (last - first).max(f64::MIN_POSITIVE);
    let up = |figure: f64| CURVES_BOTTOM - CURVES_HEIGHT * figure / highest.max(f64::MIN_POSITIVE);
    let mut svg = String::from("<svg viewBox=\"0 0 900 340\" role=\"img\">\n");
    for comparison in group {
        let at = comparison.at.unwrap_or(first);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{at:.0}</text>",
            across(at),
            CURVES_BOTTOM + 20.0
        );
    }
    let (right, top) = (CURVES_LEFT + CURVES_WIDTH, CURVES_BOTTOM - CURVES_HEIGHT);
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{CURVES_LEFT}\" x2=\"{right}\" y1=\"{CURVES_BOTTOM}\" y2=\"{CURVES_BOTTOM}\"/>\
         <text x=\"0\" y=\"{}\">{}</text>",
        top - 8.0,
        group[0].unit.show(highest)
    );
    for (index, name) in names(group).into_iter().enumerate() {
        let colour = CURVE_COLOURS[index % CURVE_COLOURS.len()];
        let points = group
            .iter()
            .filter_map(|one| Some((one.at?, median_of(one, name)?)));
        let points: Vec<String> = points
            .map(|(at, figure)| format!("{:.1},{:.1}", across(at), up(figure)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"curve\" stroke=\"{colour}\" points=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" style=\"fill:{colour}\">{}</text>",
            points.join(" "),
            right + 20.0,
            top + 20.0 * index as f64,
            escape(name)
        );
    }
    svg + "</svg>\n"
}

/// The names of the sides, each once, in the order of their first appearance.
fn names<'a>(group: &[&'a Comparison]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for side in group.iter().flat_map(|one| &one.sides) {
        if !names.contains(&side.name.as_str()) {
            names.push(&side.name);
        }
    }
    names
}

fn median_of(comparison: &Comparison, name: &str) -> Option<f64> {
    let side = comparison.sides.iter().find(|side| side.name == name)?;
    side.median()
}

fn table(group: &[&Comparison]) -> String {
    let mut rows = String::new();
    let mut commands = String::new();
    for one in group {
        for (index, side) in one.sides.iter().enumerate() {
            let subject = if index == 0 {
                escape(&one.subject)
            } else {
                String::new()
            };
            let _ = writeln!(
                rows,
                "<tr><td>{subject}<td>{}{}",
                escape(&side.name),
                cells(one, side)
            );
            let _ = writeln!(commands, "<code>{}</code><br>", escape(&side.command));
        }
    }
    format!(
        "<table>\n<tr><th><th><th>median<th>min…max<th>runs<th>{}\n{rows}</table>\n\
         <details><summary>commands</summary>\n<p>{commands}</p></details>\n",
        group[0].columns().join("<th>")
    )
}

/// Returns what was to be reached, and what was.
fn goals(goals: &[Goal]) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let row = |goal: &Goal| {
        let cells = goal.cells().map(|cell| escape(&cell)).join("<td>");
        format!("<tr><td>{cells}\n")
    };
    let rows: String = goals.iter().map(row).collect();
    let head = goal::COLUMNS.join("<th>");
    format!("<h2>goals</h2>\n<table>\n<tr><th>{head}\n{rows}</table>\n")
}

/// The numbers of a side, or why there are none.
fn cells(comparison: &Comparison, side: &Side) -> String {
    match (&side.figures, side.spread()) {
        (Ok(figures), Some(spread)) => {
            let ratios = comparison.ratios(side).into_iter().map(|ratio| {
                let ratio = ratio.map(|ratio| format!("{ratio:.3}"));
                format!("<td>{}", ratio.unwrap_or_default())
            });
            let Spread {
                median,
                least,
                greatest,
            } = spread;
            let show = |figure| comparison.unit.show(figure);
            format!(
                "<td>{}<td>{}…{}<td>{}{}",
                show(median),
                show(least),
                show(greatest),
                figures.len(),
                ratios.collect::<String>()
            )
        }
        (Err(failure), _) => {
            let columns = 3 + comparison.columns().len();
            format!("<td colspan=\"{columns}\">failed: {}", escape(failure))
        }
        (Ok(_), None) => String::new(),
    }
}

/// Text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
