use anteros_format::linux::Needs;

use super::*;
use crate::linux;

fn row(settings: &'static str, bytes: u64, read_rate: f64) -> Row {
    Row {
        letter: 'a',
        settings,
        bytes,
        build_seconds: 1.0,
        read_rate,
        linux: linux::View::new(&Needs::default()),
        is_front: false,
        is_best: false,
    }
}

#[test]
fn the_best_is_the_smallest_of_those_that_are_quick_and_not_beaten() {
    let mut rows = [
        row("-znone", 1000, 5e9),
        row("fast", 500, 1e9),
        row("beaten", 510, 0.9e9),
        row("same", 500, 1e9),
        row("good", 400, 0.25e9),
        row("slow", 300, 0.2e9),
    ];
    mark(&mut rows);
    let fronts: Vec<_> = rows.iter().filter(|row| row.is_front).collect();
    let names: Vec<_> = fronts.iter().map(|row| row.settings).collect();
    assert_eq!(names, ["-znone", "fast", "same", "good", "slow"]);
    let best: Vec<_> = rows.iter().filter(|row| row.is_best).collect();
    assert_eq!(
        best.iter().map(|row| row.settings).collect::<Vec<_>>(),
        ["good"]
    );
}

#[test]
fn drawings_have_every_row_in_its_place() {
    let mut rows = [
        row("large and quick", 3 << 20, 1e9),
        row("small and slow", 1 << 20, 1e7),
        row("also large and quick", 3 << 20, 1e9),
    ];
    for (row, letter) in rows.iter_mut().zip('a'..) {
        row.letter = letter;
    }
    let text = plot::text(&rows);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].ends_with("ca"), "{text}");
    assert!(lines[14].starts_with("  |b"), "{text}");
    let svg = plot::svg(&rows, "<a>");
    assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    assert!(
        svg.starts_with("<svg ") && svg.contains("&lt;a&gt;"),
        "{svg}"
    );
}

#[test]
fn a_single_row_is_drawn_as_well() {
    assert!(plot::text(&[row("one", 5, 5.0)]).contains('a'));
}

#[test]
fn every_setting_is_one_of_mkfs() {
    for settings in SETTINGS {
        let args = mkfs::Args::of(Path::new("/src"), settings, None);
        assert!(args.options(None).is_ok(), "{settings}");
    }
}

#[test]
fn paths_are_told_as_a_shell_reads_them() {
    assert_eq!(quoted(Path::new("/usr/share")), "/usr/share");
    assert_eq!(quoted(Path::new("a b")), "'a b'");
    assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
}
