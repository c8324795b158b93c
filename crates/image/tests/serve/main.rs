//! Tests that what is served from bounded memory, by many threads and in any order, is what the plain way reads.

#[path = "../common/mod.rs"]
mod common;

mod cohort;
mod failing;
mod in_order;
mod medium;
mod neighbours;
mod pins;
mod same_bytes;
mod samples;
mod stress;
