use std::fs::File;

use rustix::fs::mkdirat;

use super::*;

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn goes_deeper_than_paths_and_descriptors_reach() {
    let root = tempfile::tempdir().unwrap();
    let mut descent = Descent::new(Trail::root(b""), File::open(root.path()).unwrap().into());
    let mut identities = vec![identity(&fstat(descent.dir()).unwrap())];
    let before = open_fds();
    let name = [b'd'; 100];
    for _ in 0..300 {
        mkdirat(descent.dir(), &name[..], Mode::RWXU).unwrap();
        let dir = open_dir(descent.dir(), &name).unwrap();
        identities.push(identity(&fstat(&dir).unwrap()));
        let trail = descent.trail().child(&name);
        descent.enter(trail, dir).unwrap();
    }
    // Other tests of this process open a few as well.
    assert!(open_fds() < before + 200);
    let deepest = descent.trail().clone();
    let deep = identities.len() - 1;
    assert_eq!(
        identity(&fstat(descent.open(&deepest).unwrap()).unwrap()),
        identities[deep]
    );
    for expected in identities.iter().rev().skip(1) {
        descent.leave().unwrap();
        assert_eq!(identity(&fstat(descent.dir()).unwrap()), *expected);
    }
    assert_eq!(
        identity(&fstat(descent.open(&deepest).unwrap()).unwrap()),
        identities[deep]
    );
}

#[test]
fn a_symbolic_link_is_no_way() {
    let root = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/", root.path().join("link")).unwrap();
    let dir = File::open(root.path()).unwrap();
    assert!(open_dir(&dir, b"link").is_err());
    let descent = Descent::new(Trail::root(b""), dir.into());
    assert!(descent.open(&descent.trail().child(b"link")).is_err());
}
