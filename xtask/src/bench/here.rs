//! Mounts that this process serves itself.

use std::thread::{self, JoinHandle};

use anteros_fuse::{Session, Unmounter};

/// A mount, until dropped.
pub(super) struct Here {
    unmounter: Unmounter,
    served: Option<JoinHandle<()>>,
}

impl Here {
    /// Serves what was mounted.
    pub(super) fn serve(session: Session) -> Self {
        Self {
            unmounter: session.unmounter(),
            served: Some(thread::spawn(move || {
                if let Err(error) = session.run() {
                    eprintln!("bench: a mount of the benchmark: {error}");
                }
            })),
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Err(error) = self.unmounter.unmount() {
            eprintln!("bench: a mount of the benchmark: {error}");
        }
        if let Some(served) = self.served.take() {
            let _ = served.join();
        }
    }
}
