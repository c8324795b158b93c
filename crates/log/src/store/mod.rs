//! Blocks of the device: which are in use, which come next, and the way that a block takes to the device and back.
//!
//! This floor owns the segments ([`segments`]), the valid slots of packed blocks ([`slots`]), the account of used
//! blocks ([`space`]), the room that a sparse file has for them ([`room`]), what is on its way to the device
//! ([`leaving`], [`writer`]), and what was read from it before anyone asked ([`near`], [`ahead`], [`asked`]).
//!
//! It is asked for the place of a block, to write a block there and to wait until it is on the device, to read one, and
//! to forget one that counts no more. It says how many free segments are needed ([`need`]), which one to clean
//! ([`victim`]), and has content go into the holes of used ones ([`holes`]). It reads and writes the superblock
//! ([`superblock`]), and reads the packs of checkpoints with the tables that they name ([`packs`], [`table`]). What a
//! block says is no matter of this floor. It uses `compress` and `layout`.

pub(crate) mod ahead;
mod asked;
mod by_kind;
pub(crate) mod holes;
mod leaving;
pub(crate) mod medium;
mod near;
pub(crate) mod need;
pub(crate) mod packs;
pub(crate) mod room;
pub(crate) mod segments;
pub(crate) mod slots;
pub(crate) mod space;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod victim;
pub(crate) mod writer;
