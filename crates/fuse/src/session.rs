//! A mount and the workers that serve it.
//!
//! A session lives from [`Session::mount`] to the moment the kernel says that the mount is gone. It
//! goes when anyone unmounts it: `umount`, an [`Unmounter`], or the session itself, when it is
//! dropped without having run or a worker can no longer work.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::thread::{self, Scope};
use std::time::Instant;

use anteros_core::{FileKind, FileSystem, FsError, Ino, Writable, unpoisoned};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use crate::backing::{Backing, Passthrough};
use crate::blocked::{self, BlockedRequest, BlockedRequests, Limits};
use crate::channel::{Channel, Line};
use crate::device::{Device, REQUEST_HEAD_MAX, REQUEST_LEN_MAX, Request};
use crate::dispatch::{AttributeOrder, AttributeRequest, Dispatcher, LATER, Reply};
use crate::error::{MountError, UnmountError};
use crate::guardian::{self, Guardian};
use crate::init::{Terms, handshake, read_len, request_len_limit};
use crate::mount::{self, MountOptions, detach, unmount};
use crate::notify::Notifier;
use crate::readahead;
use crate::request::Answered;
use crate::retrieve::Retrieved;
use crate::ring::{NoIoUring, Ring};

/// Told of every answer.
type AnswerHook = Box<dyn Fn(&Answered) + Send + Sync>;

/// The wish of a request, and its time of arrival.
type Watch = (Option<Answered>, Instant);

/// A mounted file system.
pub struct Session {
    device: Arc<Device>,
    dispatcher: Dispatcher,
    workers: usize,
    /// Bytes of a request, with what lies in front of it in its buffer.
    request_len_max: usize,
    /// Bytes of a reply's payload at most.
    read_len_max: usize,
    /// Bytes of the payload that a ring has room for.
    ring_payload_len: usize,
    /// The queues that requests come by, and workers for each, if they come over rings.
    queues: Result<(u16, usize), NoIoUring>,
    readahead: Option<u64>,
    passthrough: Passthrough,
    on_answer: Option<AnswerHook>,
    /// Held by workers, many at once, from the moment an answer goes until the observer has been told of it.
    telling: Arc<RwLock<()>>,
    /// The first failure of a worker.
    failure: OnceLock<io::Error>,
    blocked: BlockedRequests,
    retrieved: Arc<Retrieved>,
    mounted: Mounted,
    /// Goes last: until then it is needed.
    guardian: Option<io::Result<Guardian>>,
}

impl Session {
    /// Mounts `fs` on the directory `mountpoint`. From here on the tree is visible; whoever enters
    /// waits until [`run`](Self::run) answers.
    ///
    /// # Errors
    ///
    /// [`MountError`]; nothing stays mounted then.
    pub fn mount(
        fs: Arc<dyn FileSystem>,
        mountpoint: &Path,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        if !options.any_root {
            check_root(&*fs)?;
        }
        let path = mount::resolve(mountpoint)?;
        let device = mount::mount(&path, options, fs.writable().is_none())?;
        let mounted = Mounted(Unmounter {
            path,
            live: Arc::new(AtomicBool::new(true)),
        });
        let limit = request_len_limit();
        let write_len_max = fs
            .writable()
            .map(|_| options.write_len_max.clamp(4096, limit));
        let wants_to_lend = fs.has_memory_files() || write_len_max.is_some() && options.passthrough;
        let only_answers = options.guardian && guardian::only_answers(&mounted.0.path);
        let queues = options.queues().and_then(|queues| match only_answers {
            true => Err(NoIoUring::Guarded),
            false => Ok(queues),
        });
        let terms = Terms {
            write_len_max,
            check_permissions: options.default_permissions,
            believes: fs.writable().is_none_or(|fs| !fs.trusted_for().is_zero()),
            read_len_max: read_len(options.read_len_max, limit),
            readahead: options.readahead,
            passthrough: wants_to_lend && may_lend(),
            write_back: write_len_max.is_some() && options.write_back,
            rings: queues.is_ok(),
            exports: fs.writable().is_none_or(Writable::finds_forgotten),
            keeps_listings: fs.writable().is_none_or(Writable::keeps_listings),
        };
        let agreed = handshake(&device, terms)?;
        let device = Arc::new(device);
        let mut dispatcher = Dispatcher::new(fs);
        dispatcher.set_extended_xattrs(agreed.extended_xattrs);
        dispatcher.set_keeps_listings(agreed.keeps_listings);
        if agreed.writes_back {
            dispatcher.set_write_back();
        }
        let (loans, passthrough) = match agreed
            .lends
            .then(|| Backing::new(device.clone(), dispatcher.nodes().clone()))
        {
            Some(Ok(loans)) => (Some(Arc::new(loans)), Passthrough::Taken),
            Some(Err(errno)) => (None, Passthrough::Refused(errno)),
            None if terms.passthrough => (None, Passthrough::NotOffered),
            None if wants_to_lend => (None, Passthrough::Refused(Errno::PERM)),
            None => (None, Passthrough::Unwanted),
        };
        if let Some(loans) = loans {
            if write_len_max.is_some() {
                dispatcher.set_file_lender(loans.clone());
            }
            dispatcher.set_lender(Box::new(move |ino, file| loans.id(ino, file)));
        }
        let request_len_max = write_len_max.map_or(REQUEST_LEN_MAX, |len| {
            REQUEST_LEN_MAX.max(len) + REQUEST_HEAD_MAX
        });
        let guard = || Guardian::start(&mounted.0.path, &device, request_len_max);
        let guardian = options.guardian.then(guard);
        let readahead = readahead::set(&mounted.0.path, options.readahead);
        if let Some(usual) =
            readahead.filter(|_| write_len_max.is_some() && options.readahead.is_none())
        {
            dispatcher.set_readahead(readahead::ByFile::new(&mounted.0.path, usual));
        }
        let queues = queues.and_then(|queues| match agreed.rings {
            true => Ok(queues),
            false => Err(NoIoUring::Off),
        });
        let workers = options.workers.max(1);
        // One goes on receiving. What comes by rings is answered, and this wants no answer.
        let retrieving_max = if queues.is_ok() { 0 } else { workers - 1 };
        Ok(Self {
            device,
            dispatcher,
            workers,
            passthrough,
            request_len_max,
            read_len_max: terms.read_len_max,
            ring_payload_len: terms.read_len_max.max(write_len_max.unwrap_or(0)),
            queues,
            readahead,
            on_answer: None,
            telling: Arc::default(),
            failure: OnceLock::new(),
            blocked: BlockedRequests::default(),
            retrieved: Arc::new(Retrieved::new(retrieving_max)),
            mounted,
            guardian,
        })
    }

    /// Has `hook` told of every fault of the medium or the stored data, with the inode and the words
    /// for it. The process that hits one sees only EIO or EUCLEAN. It is called by the workers.
    #[must_use]
    pub fn on_fault(mut self, hook: impl Fn(Ino, &FsError) + Send + Sync + 'static) -> Self {
        self.dispatcher.set_fault_hook(Box::new(hook));
        self
    }

    /// Has `answer` asked first for every extended attribute: what it has a value for, the file system
    /// is not asked for. So a mount can tell of itself.
    #[must_use]
    pub fn on_attribute(
        mut self,
        answer: impl Fn(&AttributeRequest<'_>) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.dispatcher.set_attribute_hook(Box::new(answer));
        self
    }

    /// Has `take` asked first for every extended attribute that is set: what it takes, or refuses, the file
    /// system does not hear of. So a mount can be told to do something.
    #[must_use]
    pub fn on_order(
        mut self,
        take: impl Fn(&AttributeOrder<'_>) -> Option<Result<(), Errno>> + Send + Sync + 'static,
    ) -> Self {
        self.dispatcher.set_order_hook(Box::new(take));
        self
    }

    /// Has `hook` told of every answer. It is called by the workers, many at once, and the next request
    /// waits for it.
    #[must_use]
    pub fn on_answer(mut self, hook: impl Fn(&Answered) + Send + Sync + 'static) -> Self {
        self.on_answer = Some(Box::new(hook));
        self
    }

    /// Returns a function that waits until the observer has been told of every answer that has gone. It may be called by
    /// hooks, but not by the observer.
    pub fn catch_up(&self) -> impl Fn() + Send + Sync + use<> {
        let telling = self.telling.clone();
        move || drop(unpoisoned(telling.write()))
    }

    /// Bytes the kernel reads ahead in this mount; `None` if it does not say. What
    /// [`MountOptions::readahead`] asked for is a wish.
    pub fn readahead(&self) -> Option<u64> {
        self.readahead
    }

    /// Returns whether the kernel takes files, to read and write them without asking.
    pub fn passthrough(&self) -> Passthrough {
        self.passthrough
    }

    /// Returns whether the kernel writes back later.
    pub fn writes_back(&self) -> bool {
        self.dispatcher.writes_back()
    }

    /// Returns how many threads answer requests.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns why requests do not come over io_uring, if they do not.
    ///
    /// # Errors
    /// When they come from `/dev/fuse`.
    pub fn over_io_uring(&self) -> Result<(), NoIoUring> {
        self.queues.map(drop)
    }

    /// Why nobody looks on, where a [guardian](MountOptions::guardian) was asked for.
    pub fn unguarded(&self) -> Option<&io::Error> {
        self.guardian.as_ref()?.as_ref().err()
    }

    /// A handle that fills the kernel's cache from another thread.
    pub fn notifier(&self) -> Notifier {
        let nodes = self.dispatcher.nodes().clone();
        Notifier::new(&self.device, nodes).retrieving(self.retrieved.clone())
    }

    /// The absolute path of the mount point.
    pub fn mountpoint(&self) -> &Path {
        &self.mounted.0.path
    }

    /// A handle that unmounts from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.mounted.0.clone()
    }

    /// Serves until the file system is unmounted, in every mount namespace that has it.
    ///
    /// # Errors
    ///
    /// When the device fails or a worker cannot be started. The file system is unmounted then too;
    /// if it is in use, the other workers serve until its last user leaves.
    pub fn run(self) -> io::Result<()> {
        // What comes over rings leaves little to the device.
        let others = self.queues.map_or(self.workers, |_| 1) - 1;
        let devices = (0..others)
            .map(|_| self.another_device())
            .collect::<io::Result<Vec<_>>>()?;
        let (queues, workers) = self.queues.unwrap_or_default();
        let queues = (0..queues).flat_map(|queue| vec![Post::Queue(queue); workers]);
        let posts: Vec<_> = devices.iter().map(Post::Device).chain(queues).collect();
        thread::scope(|scope| {
            for post in &posts {
                let worker = thread::Builder::new().name("fuse".into());
                if let Err(error) = worker.spawn_scoped(scope, || self.work(post, scope)) {
                    self.give_up(error);
                }
            }
            self.work(&Post::Device(&self.device), scope);
            self.blocked.close();
        });
        self.mounted.0.live.store(false, Ordering::Relaxed);
        self.failure.into_inner().map_or(Ok(()), Err)
    }

    /// A device for another worker.
    fn another_device(&self) -> io::Result<Device> {
        match &self.guardian {
            Some(Ok(guardian)) if guardian.answers => self.device.same(),
            _ => self.device.another(),
        }
    }

    fn work<'scope>(&'scope self, post: &Post<'scope>, scope: &'scope Scope<'scope, '_>) {
        let served = match *post {
            Post::Device(device) => self.serve(Line::new(device, self.read_len_max), scope),
            Post::Queue(queue) => self.serve_queue(queue, scope),
        };
        if let Err(error) = served {
            self.give_up(error);
        }
    }

    /// Answers what comes by a queue.
    fn serve_queue<'scope>(
        &'scope self,
        queue: u16,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        let device = self.device.as_fd();
        let ring = Ring::new(device, queue, self.ring_payload_len)?;
        self.serve(ring, scope)
    }

    /// Answers requests that come over one channel until the mount is gone.
    fn serve<'scope>(
        &'scope self,
        mut channel: impl Channel<'scope>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<()> {
        let mut request = Request::default();
        while channel.receive(&mut request, self.request_len_max)? {
            let watch = self
                .on_answer
                .as_ref()
                .map(|_| self.look_at(request.bytes()));
            let Some(mut reply) = self.dispatcher.answer(&mut request, channel.payload()) else {
                self.blocked.interrupt(request.bytes());
                self.retrieved.take(request.bytes());
                channel.pass()?;
                continue;
            };
            if reply.payload == Err(LATER) {
                reply.payload = match channel.device() {
                    Some(device) => match self.answer_in_thread(&request, watch, device, scope) {
                        Ok(()) => continue,
                        Err(errno) => Err(errno),
                    },
                    None => self.answer_in_place(&mut request, channel.payload()),
                };
            }
            let at_once = self.dispatcher.goes_on_after(&reply);
            self.tell(watch, &reply, || {
                channel.answer(reply.unique, reply.payload, at_once)
            })?;
            self.dispatcher.sent(&reply);
        }
        self.retrieved.close();
        Ok(())
    }

    /// Answers a blocked request by a thread of its own, so that no other request waits for it.
    fn answer_in_thread<'scope>(
        &'scope self,
        request: &Request,
        watch: Option<Watch>,
        device: &'scope Device,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<(), Errno> {
        let blocked = self.blocked.add(request.bytes(), blocked::WITH_THREADS)?;
        let mut request = request.copy();
        let answer = move || {
            let mut payload = vec![0; blocked::PAYLOAD_LEN];
            let reply = Reply {
                unique: blocked.unique(),
                payload: self.retry(&blocked, &mut request, &mut payload),
                written: None,
            };
            drop(blocked);
            let payload = reply.payload.map(|len| &payload[..len]);
            let sent = self.tell(watch, &reply, || device.send(reply.unique, payload));
            sent.unwrap_or_else(|error| self.give_up(error));
        };
        let thread = thread::Builder::new().name("fuse-blocked".into());
        let begun = thread.spawn_scoped(scope, answer);
        begun.map(drop).map_err(|_| Errno::AGAIN)
    }

    /// Answers a blocked request where it keeps its place in a ring. Half of a user's places, and one of all, stay free.
    fn answer_in_place(&self, request: &mut Request, payload: &mut [u8]) -> Result<usize, Errno> {
        let (_, places) = self.queues.unwrap_or((1, self.workers));
        let limits = Limits {
            of_user: (places / 2).max(1),
            of_all: places - 1,
        };
        let blocked = self.blocked.add(request.bytes(), limits)?;
        self.retry(&blocked, request, payload)
    }

    /// Answers a request again and again until nothing blocks it.
    fn retry(
        &self,
        blocked: &BlockedRequest<'_>,
        request: &mut Request,
        payload: &mut [u8],
    ) -> Result<usize, Errno> {
        loop {
            blocked.pause()?;
            let reply = self.dispatcher.answer(request, payload);
            match reply.map_or(Err(Errno::IO), |reply| reply.payload) {
                Err(LATER) => {}
                result => return result,
            }
        }
    }

    /// Notes the inode and the arrival of a request. The request may be gone when it is answered.
    fn look_at(&self, request: &[u8]) -> Watch {
        let answered = Answered::new(request, self.dispatcher.nodes());
        (answered, Instant::now())
    }

    /// Sends an answer, and tells the observer of it.
    fn tell(
        &self,
        watch: Option<Watch>,
        reply: &Reply,
        send: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(watch) = watch else {
            return send();
        };
        let _telling = unpoisoned(self.telling.read());
        let sent = send();
        self.answered(watch, reply);
        sent
    }

    /// Tells the observer of an answer, if there is one; should it panic, the worker lives on.
    fn answered(&self, (answered, start): Watch, reply: &Reply) {
        if let (Some(hook), Some(mut answered)) = (&self.on_answer, answered) {
            answered.error = reply.payload.err();
            answered.took = start.elapsed();
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&answered)));
        }
    }

    /// Remembers the first failure and unmounts, so that the other workers come to an end. Should
    /// that fail as well, they go on serving and the first failure is still what `run` returns.
    fn give_up(&self, error: io::Error) {
        let _ = self.failure.set(error);
        let _ = self.mounted.0.unmount();
    }
}

/// Channel from which a worker gets its requests.
#[derive(Clone)]
enum Post<'device> {
    Device(&'device Device),
    Queue(u16),
}

/// Returns whether the kernel takes files from us.
fn may_lend() -> bool {
    capabilities(None).is_ok_and(|ours| ours.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn check_root(fs: &dyn FileSystem) -> Result<(), MountError> {
    match fs.getattr(fs.root()).map_err(MountError::Root)?.kind {
        FileKind::Directory => Ok(()),
        other => Err(MountError::RootNotDirectory(other.name())),
    }
}

/// Unmounts a [`Session`]'s file system, from any thread: that of a signal, for one.
#[derive(Debug, Clone)]
pub struct Unmounter {
    path: PathBuf,
    /// Tells whether the mount is still the session's. A later mount at the same place is not.
    live: Arc<AtomicBool>,
}

impl Unmounter {
    /// Unmounts. A file system in use leaves the tree at once and is served until its last user
    /// leaves. Nothing happens when it is unmounted already.
    ///
    /// # Errors
    ///
    /// [`UnmountError`], but never `Busy` or `NotMounted`.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        if !self.live.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let result = match unmount(&self.path) {
            Err(UnmountError::Busy(path)) => detach(&path),
            result => result,
        };
        match result {
            Ok(()) | Err(UnmountError::NotMounted(_)) => Ok(()),
            Err(error) => {
                self.live.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

/// A mount that goes when its owner does.
struct Mounted(Unmounter);

impl Drop for Mounted {
    fn drop(&mut self) {
        // There is nobody to tell; the mount stays, and fails every access, until it is unmounted.
        let _ = self.0.unmount();
    }
}
