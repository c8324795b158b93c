//! Floors: how the owner of one is asked what the floors below it can do.

/// Lets the owner of a floor be asked what the owner that it holds can be asked.
///
/// An owner holds the one of the floor below as a field, and none above: so the compiler finds a method on this floor or
/// below, and refuses a call upwards. It does so by `Deref`, since most calls go down by more than one floor: by fields
/// alone, an inode would be `self.durable.files.packer.nodes.live(ino)` to the cleaner, and by another path to each floor.
/// Code that borrows two parts at once names the fields.
macro_rules! stands_on {
    ($owner:ty { $field:ident: $below:ty }) => {
        impl std::ops::Deref for $owner {
            type Target = $below;

            fn deref(&self) -> &$below {
                &self.$field
            }
        }

        impl std::ops::DerefMut for $owner {
            fn deref_mut(&mut self) -> &mut $below {
                &mut self.$field
            }
        }
    };
}
