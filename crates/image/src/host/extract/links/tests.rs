use super::*;

#[test]
fn names_come_back_from_the_file() {
    let place = tempfile::tempdir().unwrap();
    let root = Trail::root(b"some/where");
    let descent = Descent::new(root.clone(), File::open(place.path()).unwrap().into());
    let mut links = Links::new(3);
    let trail = |n: u64| root.child(b"directory").child(n.to_string().as_bytes());
    for n in 0..100 {
        let first = FirstName {
            trail: trail(n),
            identity: (7, u64::MAX - n),
            left: 2,
        };
        links.insert(Nid(n << 20), first).unwrap();
    }
    assert_eq!(links.near.len(), 3);
    for left in [2, 1, 0] {
        for n in 0..100 {
            let nid = Nid(n << 20);
            assert_eq!(links.contains(nid).unwrap(), left > 0);
            let found = links.get(nid, &descent).unwrap();
            assert_eq!(found.is_some(), left > 0);
            if let Some((found, identity)) = found {
                assert_eq!((found.path(), found.depth), (trail(n).path(), 2));
                assert_eq!(identity, (7, u64::MAX - n));
            }
            links.count_down(nid).unwrap();
        }
    }
    assert!(!links.contains(Nid(1)).unwrap());
}
