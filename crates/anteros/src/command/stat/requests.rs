//! The way that requests come to a daemon, and why not over io_uring.

use anteros_fuse::{IO_URING_SETTING, is_io_uring_on};

/// Stands for a mount that was made before io_uring was turned on.
const WAS_OFF: &str = "was_off";

/// Returns the word for what a daemon found when it mounted, with the setting that the kernel has now.
pub fn by_now(found: &str) -> &str {
    with_setting(found, is_io_uring_on())
}

fn with_setting(found: &str, setting: Option<bool>) -> &str {
    match (found, setting) {
        ("off", Some(true)) => WAS_OFF,
        _ => found,
    }
}

/// Returns why requests come from `/dev/fuse`, in a line for people, if they do.
pub fn line(word: &str) -> Option<String> {
    Some(format!("requests   from /dev/fuse: {}", why(word)?))
}

fn why(word: &str) -> Option<String> {
    let why = match word {
        "off" => {
            return Some(format!(
                "io_uring is off; root turns it on by `echo Y >{IO_URING_SETTING}`, or fuse.enable_uring=1 at boot"
            ));
        }
        WAS_OFF => "io_uring was off when this was mounted, and is on now: mount it again",
        "unwanted" => "--no-io-uring",
        "not_offered" => {
            "this kernel offers no io_uring (Linux 6.14 with CONFIG_FUSE_IO_URING does)"
        }
        "refused" => {
            "the daemon was refused io_uring (kernel.io_uring_disabled, or a filter of system calls)"
        }
        "few_workers" => "io_uring takes two workers for each processor (--workers)",
        "guarded" => "over io_uring, nobody could answer for a user's daemon that is killed",
        _ => return None,
    };
    Some(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_turned_on_since_takes_another_mount() {
        for (found, setting, wanted) in [
            ("off", Some(true), WAS_OFF),
            ("off", Some(false), "off"),
            ("unwanted", Some(true), "unwanted"),
            ("on", Some(false), "on"),
        ] {
            assert_eq!(with_setting(found, setting), wanted);
        }
        let told = line(WAS_OFF).unwrap();
        assert!(told.ends_with("is on now: mount it again"), "{told}");
    }

    #[test]
    fn a_reason_is_told_unless_there_is_none() {
        let told = line("unwanted").unwrap();
        assert_eq!(told, "requests   from /dev/fuse: --no-io-uring");
        assert_eq!(line("on"), None);
    }
}
