//! The buffer in front of a file system in memory, compared with that file system alone.

mod concurrency;
mod errors;
mod model;
mod paper;
mod random;
mod semantics;

use std::time::Duration;

use anteros_buffer::{Buffered, Form, Options};
use model::Model;

const FORMS: [Form; 2] = [Form::Entries, Form::Queues];

/// No thread, and so no time: all that is flushed was asked for.
fn manual(form: Form) -> Options {
    Options {
        form,
        bytes_max: 1 << 20,
        region_bytes: 256 << 10,
        threaded: false,
        passes_first: false,
        ..Options::default()
    }
}

/// A thread that goes by what is buffered, not by time.
fn untimed(form: Form) -> Options {
    Options {
        interval: Duration::from_secs(3600),
        threaded: true,
        ..manual(form)
    }
}

fn buffered(options: Options) -> Buffered<Model> {
    Buffered::new(Model::new(), options).unwrap()
}

/// Waits for something that other threads do.
fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited for too long");
}
