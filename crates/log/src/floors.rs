//! Floors: how the owner of one is asked what the floors below it can do.

/// Lets the owner of a floor be asked what the owner that it holds can be asked.
///
/// An owner holds that of the floor below as a field, and never one above: so the compiler finds a method on the same floor
/// or below it, and refuses a call upwards. Most calls go down by more than one floor, and would be a path of as many fields.
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
