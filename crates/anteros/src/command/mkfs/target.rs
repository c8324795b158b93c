//! `--for`: the machine that is to read the image.

use std::fmt;
use std::str::FromStr;

use anteros_build::Options;
use anteros_core::parse_size;
use anteros_format::linux::{Feature, Needs, Version};

use crate::failure::{Failure, Kind};
use crate::output;

/// Clusters are no larger where reads are random.
const RANDOM_CLUSTER_BYTES: u64 = 16 << 10;
/// Clusters are no smaller where reads are in order, unless kernel or memory want it.
const SEQUENTIAL_CLUSTER_BYTES: u64 = 128 << 10;
/// CPUs of a machine of which that is not said.
const CPUS: u32 = 4;

/// The way in which files will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Random,
    Sequential,
}

/// The value of `--for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    kernel: Option<Version>,
    /// The most that decoders may take on all CPUs.
    memory: Option<u64>,
    cpus: u32,
    reads: Option<Reads>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut target = Self {
            kernel: None,
            memory: None,
            cpus: CPUS,
            reads: None,
        };
        let mut keys = Vec::new();
        for word in text.split(',') {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if keys.contains(&key) {
                return Err(format!("`{key}` is told twice"));
            }
            keys.push(key);
            target.take(key, value)?;
        }
        match (keys.contains(&"cpus"), target.memory) {
            (true, None) => Err("cpus have no meaning without memory".into()),
            _ => Ok(target),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = self.kernel.map(|kernel| format!("kernel={kernel}"));
        let memory = self
            .memory
            .map(|memory| format!("memory={memory},cpus={}", self.cpus));
        let reads = self.reads.map(|reads| match reads {
            Reads::Random => "reads=random".into(),
            Reads::Sequential => "reads=sequential".into(),
        });
        let words: Vec<String> = [kernel, memory, reads].into_iter().flatten().collect();
        f.write_str(&words.join(","))
    }
}

impl Target {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "kernel" => self.kernel = Some(kernel(value)?),
            "memory" => self.memory = Some(parse_size(value).map_err(|e| e.to_string())?),
            "cpus" => self.cpus = cpus(value)?,
            "reads" => self.reads = Some(reads(value)?),
            _ => {
                return Err(format!(
                    "there is no `{key}`; kernel=, memory=, cpus= and reads= are known"
                ));
            }
        }
        Ok(())
    }

    /// Cluster sizes that do, the best one first, where `usual` is what would be taken without a target.
    pub fn clusters(&self, usual: u64) -> impl Iterator<Item = u64> + use<> {
        let first = match self.reads {
            None => usual,
            Some(Reads::Random) => usual.min(RANDOM_CLUSTER_BYTES),
            Some(Reads::Sequential) => usual.max(SEQUENTIAL_CLUSTER_BYTES),
        };
        std::iter::successors(Some(first), |size| (*size > 512).then_some(size / 2))
    }

    /// Returns whether the kernel is told.
    pub const fn knows_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// Returns whether holes have to be compressed: what keeps them is not there yet.
    pub fn has_no_chunks(&self) -> bool {
        !self.knows(Feature::Chunks)
    }

    fn knows(&self, feature: Feature) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= feature.since())
    }

    /// Checks that the machine reads every image with these options.
    ///
    /// # Errors
    ///
    /// A failure that names the first option which asks too much.
    pub fn check(&self, options: &Options) -> Result<(), Failure> {
        let needs = options.linux();
        self.check_kernel(&needs)?;
        self.check_memory(&needs)?;
        self.check_reads(options)
    }

    fn check_kernel(&self, needs: &Needs) -> Result<(), Failure> {
        let missing = needs.features.iter().filter(|f| !self.knows(**f));
        let missing = missing.max_by_key(|feature| feature.since());
        let (Some(feature), Some(kernel)) = (missing, self.kernel) else {
            return Ok(());
        };
        let (option, since) = (option_of(*feature), feature.since());
        Err(refusal(format_args!(
            "--for kernel={kernel}: {option} needs Linux {since}"
        )))
    }

    fn check_memory(&self, needs: &Needs) -> Result<(), Failure> {
        let taken = needs.decoder_bytes * u64::from(self.cpus);
        match self.memory {
            Some(memory) if taken > memory => Err(refusal(format_args!(
                "--for memory={}: decoders take about {} on {} CPUs",
                output::bytes(memory),
                output::bytes(taken),
                self.cpus
            ))
            .hint("smaller clusters (-C), dictionaries (-z…,dictsize=) and fewer cpus= take less")),
            _ => Ok(()),
        }
    }

    fn check_reads(&self, options: &Options) -> Result<(), Failure> {
        let largest = u64::from(options.pcluster_bytes_max());
        match self.reads {
            Some(Reads::Random) if largest > RANDOM_CLUSTER_BYTES => Err(cluster_refusal(
                "random",
                largest,
                "most",
                RANDOM_CLUSTER_BYTES,
            )),
            _ => Ok(()),
        }
    }

    /// Checks a cluster size that was told; one that was not may be small because nothing else will do.
    ///
    /// # Errors
    ///
    /// A failure that names it, if it is too small for reads in order.
    pub fn check_told(&self, cluster: Option<u64>) -> Result<(), Failure> {
        match (self.reads, cluster) {
            (Some(Reads::Sequential), Some(told)) if told < SEQUENTIAL_CLUSTER_BYTES => Err(
                cluster_refusal("sequential", told, "least", SEQUENTIAL_CLUSTER_BYTES),
            ),
            _ => Ok(()),
        }
    }
}

/// The option of `mkfs` that makes images have a feature.
fn option_of(feature: Feature) -> String {
    match feature {
        Feature::Lzma => "-zlzma",
        Feature::Deflate => "-zdeflate",
        Feature::Zstd => "-zzstd",
        Feature::BigPclusters => "a cluster (-C) of several blocks",
        Feature::InlineTails => "-Eztailpacking",
        Feature::Fragments => "-Efragments, -Ededupe or --compress-directories",
        Feature::Chunks => "--chunksize, or --holes other than compress,",
        Feature::Wide => "-E48bit or -Edot-omitted",
        Feature::Metabox => "-m",
        Feature::SmallBlocks | Feature::SmallCompressedBlocks => "a block size (-b) below 4K",
        other => return other.name().into(),
    }
    .into()
}

/// A failure that names a cluster size.
fn cluster_refusal(reads: &str, found: u64, bound: &str, at: u64) -> Failure {
    let (found, at) = (output::bytes(found), output::bytes(at));
    refusal(format_args!(
        "--for reads={reads}: a cluster (-C) of {found}; {at} is the {bound}"
    ))
}

fn refusal(text: fmt::Arguments<'_>) -> Failure {
    Failure::new(Kind::Usage, text)
}

fn kernel(value: &str) -> Result<Version, String> {
    let version: Version = value.parse().map_err(|e| format!("`{value}`: {e}"))?;
    let first = Feature::Erofs.since();
    match version < first {
        true => Err(format!(
            "Linux {version} has no EROFS; {first} is the first"
        )),
        false => Ok(version),
    }
}

fn cpus(value: &str) -> Result<u32, String> {
    let count = value
        .parse()
        .ok()
        .filter(|count| (1..=8192).contains(count));
    count.ok_or_else(|| format!("`{value}` is no number of cpus; 1 to 8192 are"))
}

fn reads(value: &str) -> Result<Reads, String> {
    match value {
        "random" => Ok(Reads::Random),
        "sequential" => Ok(Reads::Sequential),
        _ => Err(format!(
            "`{value}` is no way to read; random and sequential are"
        )),
    }
}
