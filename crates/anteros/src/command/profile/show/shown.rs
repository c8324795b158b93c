//! An image as it is shown.

use super::survey::Survey;

/// An image, and what a profile reads of it.
pub struct Shown {
    /// The name of the image.
    pub name: String,
    /// Costs of the ranges that it has.
    pub survey: Survey,
    /// Ranges that the image does not have.
    pub missing: u64,
    /// Of these, ranges with other content.
    pub changed: u64,
}
