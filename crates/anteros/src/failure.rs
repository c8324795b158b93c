//! Ends of commands: what people are told, and the exit status that scripts see.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anteros_format::Corrupt;
use anteros_image::WalkProblem;

/// Tells what a command that could do its work found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Good,
    /// The image has faults, or differs from its source.
    Bad,
    /// The work was done but for parts that were left out, each of which was named.
    Partial,
}

/// The end of a command.
pub type Outcome = Result<Verdict, Failure>;

/// The kinds of failure, by exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The arguments make no sense.
    Usage = 2,
    /// The image, the record, or the archive, breaks a rule of its format.
    Corrupt = 3,
    /// The image, or a request, needs what this version does not know.
    Unsupported = 4,
    /// The operating system said no: permissions, missing files, full disks, failing media.
    System = 5,
    /// Interrupted by a signal.
    Interrupted = 130,
    /// Nobody reads the output any more.
    BrokenPipe = 141,
}

/// Shown at the end of `anteros --help`.
pub const STATUS_HELP: &str = "\
Exit status: 0 done, 1 faults or differences found, 2 usage, 3 broken image, record or archive,
4 unsupported, 5 system error, 6 done in part, 130 interrupted.";

/// Tells why a command could not do its work.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    /// Tells whether people have been told of it.
    is_told: bool,
    /// The exit status, where it is not that of the kind.
    status: Option<u8>,
}

impl Failure {
    /// A failure with a message that names the place and the cause.
    pub fn new(kind: Kind, message: impl Display) -> Self {
        Self {
            kind,
            message: message.to_string(),
            hint: None,
            is_told: false,
            status: None,
        }
    }

    /// Adds what to do next.
    pub fn hint(self, hint: impl Display) -> Self {
        self.hint_if(Some(hint))
    }

    /// Adds what to do next, if that is known.
    pub fn hint_if(self, hint: Option<impl Display>) -> Self {
        Self {
            hint: hint.map(|hint| hint.to_string()),
            ..self
        }
    }

    /// An error of the operating system about a path.
    pub fn system(path: &Path, error: &io::Error) -> Self {
        Self::new(Kind::System, format_args!("{}: {error}", path.display()))
    }

    /// An error of the operating system that says all there is to say.
    pub fn os(error: io::Error) -> Self {
        Self::new(Kind::System, error)
    }

    /// An error of opening an image, which is called `name`.
    pub fn opening(name: impl Display, error: &anteros_image::Error) -> Self {
        let failure = Self::new(kind_of(error), format_args!("{name}: {error}"));
        match error {
            anteros_image::Error::Devices { .. } => {
                failure.hint("name each extra device, in order, with --device FILE")
            }
            anteros_image::Error::Corrupt { fault, .. } => match fault {
                Corrupt::Magic { .. } => {
                    failure.hint("an image that begins further on needs --offset BYTES")
                }
                Corrupt::Checksum { .. } => {
                    failure.hint("--no-checksum reads it all the same; `anteros check` finds more")
                }
                _ => failure,
            },
            _ => failure,
        }
    }

    /// An error of an open image, which is called `name`.
    pub fn image(name: impl Display, error: &anteros_image::Error) -> Self {
        let failure = Self::new(kind_of(error), format_args!("{name}: {error}"));
        match error.is_corrupt() {
            true => failure.hint("`anteros check` lists every fault in an image"),
            false => failure,
        }
    }
}

impl Failure {
    /// Returns what people are told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns its kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Ends the program with this status, unless another one was told before.
    pub fn with_status(self, status: u8) -> Self {
        let status = self.status.or(Some(status));
        Self { status, ..self }
    }

    /// For tools whose exit status is 1 whatever is wrong: tells of it. A signal, and output that nobody reads, stay
    /// what they are.
    pub fn into_fault(self) -> Outcome {
        if matches!(self.kind, Kind::Interrupted | Kind::BrokenPipe) {
            return Err(self);
        }
        self.tell();
        Ok(Verdict::Bad)
    }

    /// Tells people, unless they know, or nobody listens.
    fn tell(&self) {
        if self.kind == Kind::BrokenPipe || self.is_told {
            return;
        }
        crate::output::complain("error", &self.message);
        if let Some(hint) = &self.hint {
            crate::output::complain("hint", hint);
        }
    }
}

/// Work of several parts, which goes on with the next one when one fails.
#[derive(Debug, Default)]
pub struct Parts {
    is_any_done: bool,
    /// The first failure of a part.
    first: Option<Failure>,
}

impl Parts {
    /// A part was done.
    pub fn done(&mut self) {
        self.is_any_done = true;
    }

    /// A part was left out: people are told at once.
    pub fn left_out(&mut self, mut failure: Failure) {
        failure.tell();
        failure.is_told = true;
        self.first.get_or_insert(failure);
    }

    /// The end of the work: done, done in part, or failed as its first part has.
    pub fn end(self) -> Outcome {
        match self.first {
            None => Ok(Verdict::Good),
            Some(_) if self.is_any_done => Ok(Verdict::Partial),
            Some(failure) => Err(failure),
        }
    }
}

/// The kind of failure that an error of an image is.
pub fn kind_of(error: &anteros_image::Error) -> Kind {
    match error {
        error if error.is_corrupt() => Kind::Corrupt,
        anteros_image::Error::Unsupported { .. } => Kind::Unsupported,
        anteros_image::Error::Devices { .. } | anteros_image::Error::LowerImage { .. } => {
            Kind::Usage
        }
        // The image ends where it should go on.
        anteros_image::Error::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::UnexpectedEof) =>
        {
            Kind::Corrupt
        }
        _ => Kind::System,
    }
}

/// The kind of failure that the end of a walk of an image is.
pub fn kind_of_walk(problem: &WalkProblem) -> Kind {
    match problem {
        WalkProblem::Image(error) => kind_of(error),
        WalkProblem::Cancelled => Kind::Interrupted,
        WalkProblem::PathLength => Kind::Unsupported,
        problem if problem.is_corrupt() => Kind::Corrupt,
        _ => Kind::System,
    }
}

/// Errors of standard output end up here; all others are given their path where they occur.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::BrokenPipe => Kind::BrokenPipe,
            _ => Kind::System,
        };
        Self::new(kind, format_args!("standard output: {error}"))
    }
}

/// Tells people, and gives the status for scripts.
pub fn exit(outcome: Outcome) -> ExitCode {
    let failure = match outcome {
        Ok(Verdict::Good) => return ExitCode::SUCCESS,
        Ok(Verdict::Bad) => return ExitCode::from(1),
        Ok(Verdict::Partial) => return ExitCode::from(6),
        Err(failure) => failure,
    };
    failure.tell();
    ExitCode::from(failure.status.unwrap_or(failure.kind as u8))
}
