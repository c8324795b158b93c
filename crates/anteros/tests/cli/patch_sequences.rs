//! Tests random sequences of patches of all kinds against a tree that is changed alike. After each step the image is as the
//! tree, and at the end all states still are as they were.

use std::fs;

use anteros_tests::peers::Peers;
use anteros_tests::trees::Random;

use crate::Workshop;
use crate::patches::{change, judge_image, shop};

/// Steps of a sequence.
const STEPS: u64 = 14;

/// An image that is patched, a copy of it that lags behind, and the trees of all states.
struct Sequence {
    shop: Workshop,
    random: Random,
    /// The number of the current state.
    state: u32,
    /// The state of the copy.
    copied: u32,
}

impl Sequence {
    fn new(seed: u64, options: &str) -> Self {
        let shop = shop();
        // Times of directories are those of the host, which the image does not see.
        shop.good_script(
            "head -c 200000 text >tree/kept/large; find tree -type d -exec touch -d @1000 {} +",
        );
        shop.good(&format!("mkfs image tree --quiet {options}"));
        shop.good_script("cp image copy; cp -a tree state.0");
        Self {
            shop,
            random: Random(seed),
            state: 0,
            copied: 0,
        }
    }

    /// Changes the image and the tree alike; tells how.
    fn step(&mut self) -> String {
        match self.random.below(7) {
            0..3 => self.replace(),
            3 => self.lay_over(),
            4 => self.add_and_delete(),
            5 => self.roll_back(),
            _ => self.apply(),
        }
    }

    /// Notes that the tree has changed, and has the image follow.
    fn patch(&mut self, arguments: &str) -> String {
        let touch = "find tree -type d -exec touch -d @1000 {} +";
        self.shop.good_script(touch);
        let told = self.shop.good(&format!("patch image {arguments}"));
        if !told.contains("nothing to change") {
            self.state += 1;
            let copy = format!("cp -a tree state.{}", self.state);
            self.shop.good_script(&copy);
        }
        arguments.into()
    }

    fn replace(&mut self) -> String {
        for _ in 0..=self.random.below(4) {
            change(&self.shop, &mut self.random);
        }
        let at = self.random.below(190_000);
        let byte = self.random.below(10);
        self.shop.good_script(&format!(
            "printf {byte} | dd of=tree/kept/large bs=1 seek={at} conv=notrunc 2>/dev/null"
        ));
        self.patch("--from tree")
    }

    fn lay_over(&mut self) -> String {
        let name = format!("laid{}", self.random.below(3));
        let len = self.random.length(90_000);
        self.shop.good_script(&format!(
            "rm -rf tree/{name}; mkdir tree/{name}; head -c {len} text >tree/{name}/a; tail -c {len} text >tree/{name}/b
             ln -s a tree/{name}/l; touch -d @1000 tree tree/{name}; : >.wh; mkdir -p w; cp .wh w/.wh.{name}
             tar --format=posix --no-recursion -C w -cf w.tar .wh.{name}
             tar --format=posix --no-recursion -C tree -cf l.tar . {name} {name}/a {name}/b {name}/l; rm -r w"
        ));
        if self.shop.good("patch image --tar w.tar") != "image: nothing to change\n" {
            self.state += 1;
            self.shop.good_script(&format!(
                "cp -a tree state.{0}; rm -r state.{0}/{name}; touch -d @1000 state.{0}",
                self.state
            ));
        }
        self.patch("--tar l.tar")
    }

    fn add_and_delete(&mut self) -> String {
        let number = self.random.below(1000);
        let len = self.random.length(50_000);
        self.shop.good_script(&format!(
            "head -c {len} text >added; cp -a added tree/added{number}; rm -f tree/kept/3; : >tree/kept/3"
        ));
        self.patch("--from tree --quiet");
        self.shop.good_script(&format!(
            "rm tree/kept/3; printf {number} >>added; cp -a added tree/added{number}"
        ));
        self.patch(&format!("--delete kept/3 --add added added{number}"))
    }

    fn roll_back(&mut self) -> String {
        if self.state == 0 {
            return "nothing".into();
        }
        let number = self.random.below(self.state.into()) as u32;
        self.shop
            .good_script(&format!("rm -rf tree; cp -a state.{number} tree"));
        self.patch(&format!("--rollback {number}"))
    }

    /// Has the copy follow, by a patch from its state on.
    fn apply(&mut self) -> String {
        if self.copied < self.state {
            let since = self.copied;
            self.shop.good(&format!(
                "patch image --export patch --since {since} --quiet"
            ));
            self.shop.good("patch copy --apply patch --quiet");
            self.copied = self.state;
            let [image, copy] =
                ["image", "copy"].map(|name| fs::read(self.shop.path(name)).unwrap());
            assert!(image == copy, "from state {since} on");
        }
        "--apply".into()
    }

    /// Makes sure that all states are what they were.
    fn check_states(&self, what: &str) {
        for number in 0..self.state {
            self.shop.good_script("cp image former");
            self.shop
                .good(&format!("patch former --rollback {number} --quiet"));
            self.shop.good("check --quiet former");
            let told = self.shop.run(&format!("verify former state.{number}"));
            assert_eq!(told.status, Some(0), "{what}, state {number}: {told:?}");
        }
    }
}

#[test]
fn sequences_of_patches_follow_a_tree() {
    let peers = Peers::find();
    for (seed, options) in [
        (1, "-zlz4 -C16384"),
        (2, "-zlz4 -C65536 -Eall-fragments,dedupe"),
        (3, "-zzstd,1 -C32768 -E48bit"),
        (4, "-znone --chunksize=4096"),
        (5, "-zdeflate,1 -C8192 -b1024 -Eztailpacking"),
        (6, ""),
    ] {
        let mut sequence = Sequence::new(seed, options);
        let mut steps = Vec::new();
        for number in 0..STEPS {
            steps.push(sequence.step());
            let what = format!("{options}: {steps:?}");
            let is_last = number + 1 == STEPS;
            let peers = peers.as_ref().filter(|_| is_last || number % 4 == 0);
            judge_image(&sequence.shop, peers, "tree", &what);
        }
        assert!(sequence.state > 5, "{steps:?}");
        sequence.check_states(&format!("{options}: {steps:?}"));
    }
}
