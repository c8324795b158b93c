//! The tests themselves, where they are started in the background or by nohup: signals are ignored there.

use std::process::Command;

use anteros_tests::judge;

use crate::run;

/// Each of these waits for what a signal does.
#[test]
fn tests_of_signals_pass_where_signals_are_ignored() {
    let mut tests = vec![
        "failures::an_interrupted_build_leaves_nothing",
        "failures::a_build_that_waits_for_a_pipe_can_be_interrupted",
        "messages::what_is_said_of_an_interrupted_build_is_so",
        "messages::what_is_said_of_an_interrupted_extraction_is_so",
    ];
    if judge::has_fuse() {
        tests.push("mounts::a_daemon_in_the_foreground_unmounts_when_told_to_stop");
    }
    let mut ignoring = Command::new("sh");
    ignoring
        .args([
            "-c",
            "trap '' INT HUP QUIT; exec timeout 300 \"$0\" --exact \"$@\"",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(tests);
    let ran = run(&mut ignoring);
    assert_eq!(ran.status, Some(0), "{ran:?}");
}
