//! Small trees that were made up, and what is said of them.

use super::modules::{self, Files, Imports};
use super::rules::{Exception, Floor, Owner, Rules};

fn tree(files: &[(&str, &str)]) -> Files {
    files
        .iter()
        .map(|&(path, text)| (path.to_string(), text.to_string()))
        .collect()
}

/// The imports of a tree as `from:line to`.
fn edges(files: &[(&str, &str)]) -> Vec<String> {
    let imports: Imports = modules::imports(&tree(files));
    imports
        .iter()
        .map(|((from, to), import)| format!("{from}:{} {to}", import.line))
        .collect()
}

const NONE: Rules<'_> = Rules {
    floors: &[],
    owners: &[],
    allowed: &[],
    architecture: "",
};

fn faults(rules: &Rules<'_>, files: &[(&str, &str)]) -> Vec<String> {
    let files = tree(files);
    rules.faults("crates/made", &files, &modules::imports(&files))
}

#[test]
fn names_are_followed_to_where_they_are_defined() {
    let lib = "mod a;\nmod b;\nmod c;\npub use b::{inner::Deep, B as Other};";
    let found = edges(&[
        ("lib.rs", lib),
        (
            "a.rs",
            "use crate::{\n    Other,\n    c::C,\n};\nfn a(_: crate::Deep) {}",
        ),
        ("b/mod.rs", "pub mod inner;\npub struct B;"),
        ("b/inner.rs", "pub struct Deep;"),
        (
            "c.rs",
            "use crate::b;\npub struct C;\nfn c() {\n    b::inner::Deep::new();\n}",
        ),
    ]);
    assert_eq!(
        found,
        [
            "a.rs:5 b/inner.rs",
            "a.rs:2 b/mod.rs",
            "a.rs:3 c.rs",
            "c.rs:4 b/inner.rs"
        ]
    );
}

#[test]
fn to_declare_and_to_pass_on_is_no_import() {
    let parent = "mod child;\npub use child::Child;\npub struct Parent;";
    let child = "use super::Parent;\npub struct Child;";
    let found = edges(&[
        ("lib.rs", "mod p;"),
        ("p/mod.rs", parent),
        ("p/child.rs", child),
    ]);
    assert_eq!(found, ["p/child.rs:1 p/mod.rs"]);
    // Whoever uses what is passed on imports it.
    let parent = format!("{parent}\nfn f(_: Child) {{}}");
    let found = edges(&[
        ("lib.rs", "mod p;"),
        ("p/mod.rs", &parent),
        ("p/child.rs", child),
    ]);
    assert_eq!(found, ["p/child.rs:1 p/mod.rs", "p/mod.rs:2 p/child.rs"]);
}

#[test]
fn modules_without_a_file_belong_to_the_file_around_them() {
    let found = edges(&[
        ("lib.rs", "mod a;\nmod b;"),
        (
            "a.rs",
            "struct Own;\nmod inner {\n    use super::Own;\n    use super::super::b::B;\n    pub const X: u8 = 0;\n}",
        ),
        ("b.rs", "pub struct B;\nuse crate::a::inner::X;"),
    ]);
    assert_eq!(found, ["a.rs:4 b.rs", "b.rs:2 a.rs"]);
}

#[test]
fn everything_of_a_module_is_found_through_a_star() {
    let found = edges(&[
        ("lib.rs", "mod a;\nmod b;\npub use b::*;"),
        ("a.rs", "use crate::B;"),
        ("b.rs", "pub struct B;"),
    ]);
    assert_eq!(found, ["a.rs:1 b.rs"]);
}

#[test]
fn code_for_tests_imports_nothing() {
    let test = "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n#[cfg(test)]\nuse crate::b::B;";
    let found = edges(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", test),
        ("b.rs", "pub struct B;"),
    ]);
    assert_eq!(found, [""; 0]);
    assert!(modules::is_test("a/tests.rs") && modules::is_test("tests/b.rs"));
    assert!(!modules::is_test("attests.rs"));
}

const CYCLE: [(&str, &str); 4] = [
    ("lib.rs", "mod a;\nmod b;\nmod c;"),
    ("a.rs", "use crate::b::B;\npub struct A;"),
    ("b.rs", "\nuse crate::c::C;\npub struct B;"),
    ("c.rs", "fn c(_: crate::a::A) {}\npub struct C;"),
];

#[test]
fn a_cycle_is_told_with_its_lines() {
    assert_eq!(
        faults(&NONE, &CYCLE),
        [
            "cycle: files of crates/made/src import each other in a circle
    crates/made/src/a.rs:1 imports b.rs (crate::b::B)
    crates/made/src/b.rs:2 imports c.rs (crate::c::C)
    crates/made/src/c.rs:1 imports a.rs (crate::a::A)
  move what both need into a file below them, or hand it in from the file above"
        ]
    );
}

const EXCEPTION: Exception = Exception {
    name: "crates/made",
    from: "c.rs",
    to: "a.rs",
    reason: "they are one",
};

#[test]
fn an_exception_is_needed_and_told() {
    let row = "| `crates/made/src/c.rs` → `a.rs` | they are one |";
    let allowed = [EXCEPTION];
    let rules = Rules {
        allowed: &allowed,
        architecture: row,
        ..NONE
    };
    assert_eq!(faults(&rules, &CYCLE), [""; 0]);
    let untold = faults(
        &Rules {
            architecture: "",
            ..rules
        },
        &CYCLE,
    );
    assert!(
        untold[0].starts_with("untold exception: ") && untold[0].ends_with(row),
        "{untold:?}"
    );
    let without = faults(&rules, &CYCLE[..3]);
    assert_eq!(without.len(), 1);
    assert!(
        without[0]
            .starts_with("needless exception: no cycle goes from crates/made/src/c.rs to a.rs")
    );
}

#[test]
fn floors_import_downwards() {
    let floors = [
        Floor("low", &["low/"]),
        Floor("high", &["high.rs", "gone.rs", "low/up.rs"]),
    ];
    let rules = Rules {
        floors: &floors,
        ..NONE
    };
    let found = faults(
        &rules,
        &[
            ("lib.rs", "mod low;\nmod high;\nmod loose;"),
            ("low/mod.rs", "mod a;\nmod b;\nmod up;"),
            ("low/up.rs", "use crate::high::High;"),
            ("low/a.rs", "use super::b::B;\n\nuse crate::high::High;"),
            ("low/b.rs", "pub struct B;"),
            ("high.rs", "pub struct High;"),
            ("loose.rs", "use crate::high::High;"),
        ],
    );
    assert_eq!(
        found,
        [
            "no floor: crates/made/src/loose.rs is on none
  move it into the folder of one, or add it to FLOORS in xtask/src/imports.rs",
            "empty floor: crates/made/src/gone.rs of the floor high is not there
  remove it from FLOORS in xtask/src/imports.rs",
            "upward import: the floor low imports from the floor high, which is above it
    crates/made/src/low/a.rs:3 imports high.rs (crate::high::High)
  move what it needs down to low or below, or hand it in from above"
        ]
    );
}

#[test]
fn an_owner_has_its_methods_on_its_floor() {
    let floors = [Floor("low", &["low/"]), Floor("high", &["high.rs"])];
    let owners = [Owner {
        name: "Low",
        home: "low/",
    }];
    let rules = Rules {
        floors: &floors,
        owners: &owners,
        ..NONE
    };
    let high = "use crate::low::Low;\nimpl From<Low> for u8 {}\nimpl High {}\nimpl Low {\n}";
    let found = faults(
        &rules,
        &[
            ("lib.rs", "mod low;\nmod high;"),
            ("low/mod.rs", "mod a;\npub struct Low;\nimpl Low {}"),
            ("low/a.rs", "use super::Low;\nimpl Low {}"),
            ("high.rs", high),
        ],
    );
    assert_eq!(
        found,
        [
            "methods from elsewhere: Low is given methods outside of its floor
    crates/made/src/high.rs:4
  move them to low/, or make them functions"
        ]
    );
}
