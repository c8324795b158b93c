//! Part `creation`: new files, and what of their time the kernel takes to ask a daemon that does nothing. A daemon that
//! makes them does what the native file system does besides, so no mirror can be faster than both together.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anteros_fuse::{MountOptions, Session};

use super::harness::{Bench, Subject};
use super::idle::Idle;
use super::native::Native;
use super::throughput::metric;
use super::turn::REST;
use super::way::{self, Way};
use super::workload::{CREATION, WORKLOADS, Workload, get_ready};
use crate::bench::here::Here;
use crate::outcome::Outcome;

/// Runs the part.
///
/// # Errors
/// When nothing can be mounted.
pub(super) fn creation(bench: &mut Bench) -> Outcome {
    let workload = WORKLOADS.iter().find(|one| one.name == CREATION);
    let workload = workload.ok_or("no such workload")?;
    let mut ways = bench.named(&[
        way::AUTO,
        way::WITHOUT_RINGS,
        way::HP,
        way::HP_RINGS,
        way::NATIVE,
    ]);
    ways.extend([Way::idle(true), Way::idle(false)]);
    bench.on_each(Native::in_memory, |bench, native| {
        let metrics = [(metric(CREATION, "to the page cache"), workload.unit)];
        let subject = Subject {
            name: native.kind.name,
            at: None,
            metrics: &metrics,
        };
        bench.contest(&subject, &ways, |bench, way| match way.is_idle() {
            Some(io_uring) => Ok(vec![bench.idle(workload, io_uring)?]),
            None => Ok(vec![bench.write(native, way, workload)?[0]]),
        });
        Ok(())
    })
}

impl Bench<'_> {
    /// Returns how fast the daemon is that does nothing.
    fn idle(&self, workload: &Workload, io_uring: bool) -> Outcome<f64> {
        let directory = self.place.directory("mount")?;
        let options = MountOptions {
            io_uring,
            ..MountOptions::default()
        };
        let session = Session::mount(Arc::new(Idle::new()?), &directory, &options)?;
        let _served = Here::serve(session);
        get_ready();
        thread::sleep(REST);
        let start = Instant::now();
        let amount = (workload.work)(&directory)?;
        Ok(amount / start.elapsed().as_secs_f64())
    }
}
