//! A directory of the host: an image is extracted into one, and compared with the one it was made from.
//!
//! ```text
//!      extract               verify
//!   image → directory    image ⇄ directory
//!           │                    │
//!           ▼                    ▼
//!   descent      opens directories by name in their parents, and never leaves the root
//!   descriptor   paths for system calls that take no descriptor
//!   xattrs       extended attributes: which of them matter, and those of a file
//! ```
//!
//! Both walk with one thread and let workers read the data (`parts`). They do not know each other.

mod descent;
mod descriptor;
mod extract;
mod verify;
mod xattrs;

pub use extract::{
    ERRORS_KEPT, ExtractError, ExtractObserver, ExtractOptions, ExtractProblem, ExtractSummary,
    Omitted, Warning, extract,
};
pub use verify::{
    Difference, ImageText, Mismatch, Side, VerifyError, VerifyObserver, VerifyOptions,
    VerifyProblem, VerifyReport, verify,
};
pub use xattrs::XattrScope;
