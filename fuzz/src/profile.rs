//! The target `profile`.

use anteros_trace::profile::{Profile, merge};

/// Reads the bytes as an access profile. What is taken is written and read again as it was, and merged with itself: the ranges of
/// that do not overlap, and stay as they are when they are merged again.
pub fn profile(input: &[u8]) {
    let profile = match Profile::parse(input) {
        Ok(profile) => profile,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(again(&profile), profile);
    let merged = merge(&[profile.clone(), profile]);
    let mut ranges: Vec<_> = merged.ranges.iter().collect();
    ranges.sort_by_key(|range| (&range.path, range.offset));
    for pair in ranges.windows(2) {
        assert!(pair[0].path != pair[1].path || pair[0].end() <= pair[1].offset);
    }
    assert!(ranges.iter().all(|range| range.len > 0));
    assert_eq!(merge(std::slice::from_ref(&merged)), merged);
}

fn again(profile: &Profile) -> Profile {
    let mut text = Vec::new();
    profile.write(&mut text).expect("memory takes all");
    Profile::parse(&text).expect("what was written can be read")
}
