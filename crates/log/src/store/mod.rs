//! Blocks of the device: which are in use, which come next, and the way that a block takes to the device and back.
//!
//! This floor owns what [`blocks`] lists: the segments ([`segments`]) and their table ([`sit`]), the valid slots of packed
//! blocks ([`bst`], [`occupy`]), the account of used blocks ([`space`]), the room that a sparse file has for them
//! ([`room`], [`reserved`]), what is on its way to the device ([`writeback`], [`writer`]), and what was read from it before
//! anyone asked ([`near`], [`ahead`], [`kept`], [`recent_reads`]).
//!
//! It is asked for the place of a block ([`place`]), to write a block there and to wait until it is on the device, to
//! read one, and to forget one that counts no more. It says how many free segments are needed ([`need`]), which one to
//! clean ([`victim`]), and has content go into the holes of used ones ([`holes`]); what a checkpoint has made free is
//! given back ([`release`]). It lends memory ([`loan`]). It reads and writes the superblock ([`superblock`]), and reads
//! the packs of checkpoints with the tables that they name ([`packs`], [`table`]). When the device fails, it remembers
//! why ([`health`]). It has the kind of table by number that other floors keep as well ([`by_number`]). What a block
//! says is no matter of this floor. It uses `compress` and `layout`.

pub(crate) mod ahead;
mod blocks;
pub(crate) mod bst;
mod by_kind;
pub(crate) mod by_number;
mod health;
pub(crate) mod holes;
mod kept;
pub(crate) mod loan;
pub(crate) mod medium;
mod near;
pub(crate) mod need;
mod occupy;
pub(crate) mod packs;
mod place;
mod recent_reads;
mod release;
mod reserved;
pub(crate) mod room;
pub(crate) mod segments;
mod sit;
pub(crate) mod space;
pub(crate) mod superblock;
pub(crate) mod table;
pub(crate) mod victim;
mod writeback;
pub(crate) mod writer;

pub(crate) use blocks::{Parts, Store};
