//! What all parts of an open storage share: the objects, the names, what failed.
//!
//! 1. After a failure nothing is written any more, and nothing acknowledged. Reading goes on.
//! 2. Uploads that are not needed by a sync yet take bounded memory: a writer waits for those before.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use storage::WriterState;

use crate::clock::Moment;
use crate::file::File;
use crate::history::new_id;
use crate::names::ObjectName;
use crate::objects::Objects;
use crate::options::Options;
use crate::record::Op;

/// Bytes of an object of data: a file's bytes go into one when there are so many.
pub(crate) const PART: u64 = 16 << 20;
/// Objects on the way before a sync asks for them.
const UPLOADS: usize = 4;

/// What a name means.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Directory,
    File(Arc<File>),
}

/// What a heartbeat of a writer with a lease says.
pub(crate) fn lease(lease: Option<Duration>) -> Vec<Op> {
    let ms = lease.map(|lease| u32::try_from(lease.as_millis()).unwrap_or(u32::MAX));
    ms.map(|ms| Op::Lease { ms }).into_iter().collect()
}

/// The number of a writer's first object: random, because a log that went back gives another writer the same epoch. That one must not write
/// over objects of what the log lost, nor be read from caches that have them.
fn first_object() -> io::Result<u64> {
    let [a, b, c, d, ..] = new_id()?;
    Ok(u64::from(u32::from_le_bytes([a, b, c, d])) << 24)
}

#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) entries: BTreeMap<String, Node>,
    /// Changes since the last commit, in order.
    pub(crate) pending: Vec<Op>,
    pub(crate) next_file: u64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// A reader that follows has one for all states that it showed.
    pub(crate) objects: Arc<Objects>,
    pub(crate) options: Options,
    pub(crate) names: Mutex<Names>,
    /// Files without a name that may be open.
    pub(crate) removed: Mutex<Vec<Weak<File>>>,
    /// Bytes in the store.
    pub(crate) live: AtomicU64,
    /// Reads ahead that are under way.
    pub(crate) ahead: AtomicUsize,
    /// The last commit.
    pub(crate) number: AtomicU64,
    epoch: u64,
    next_object: AtomicU64,
    failure: Mutex<Option<String>>,
    /// It failed because another writer has begun.
    is_overtaken: AtomicBool,
    uploads: Mutex<usize>,
    uploaded: Condvar,
    /// When the newest commit of this writer began that is known to be there.
    proven: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        objects: Arc<Objects>,
        options: Options,
        names: Names,
        epoch: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            objects,
            options,
            names: Mutex::new(names),
            removed: Mutex::default(),
            live: AtomicU64::new(0),
            ahead: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            epoch,
            next_object: AtomicU64::new(first_object()?),
            failure: Mutex::default(),
            is_overtaken: AtomicBool::new(false),
            uploads: Mutex::new(0),
            uploaded: Condvar::new(),
            proven: AtomicU64::new(0),
        })
    }

    /// Fails where nothing may be written.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.options.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        match &*self.failure.lock() {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    /// Whether nothing is written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// Notes that a commit is there that began at this moment: nobody had overtaken this writer then.
    pub(crate) fn prove(&self, begun: Moment) {
        self.proven.fetch_max(begun.0, Ordering::AcqRel);
    }

    /// The time since the last commit began that is known to be there.
    pub(crate) fn since_proven(&self) -> Duration {
        Moment(self.proven.load(Ordering::Acquire)).elapsed()
    }

    /// How long the next heartbeat may wait; `None`: this writer has none.
    pub(crate) fn until_heartbeat(&self) -> Option<Duration> {
        let pause = self.options.lease? / 3;
        Some(pause.saturating_sub(self.since_proven()))
    }

    /// What a heartbeat says.
    pub(crate) fn lease(&self) -> Vec<Op> {
        lease(self.options.lease)
    }

    /// Ends writing. The first failure is the one that is reported.
    pub(crate) fn fail(&self, why: &dyn std::fmt::Display) -> io::Error {
        let mut failure = self.failure.lock();
        let text = failure.get_or_insert_with(|| {
            let text = format!("{why}; nothing more is written until it is opened again");
            tracing::error!("{text}");
            text
        });
        io::Error::other(text.clone())
    }

    /// The error of a writer that finds another's commit under its next number.
    pub(crate) fn overtaken(&self, number: u64) -> io::Error {
        self.is_overtaken.store(true, Ordering::Release);
        io::Error::other(format!(
            "another writer has taken over: commit {number} is not ours"
        ))
    }

    /// Whether something ended writing, and what.
    pub(crate) fn ended(&self) -> Option<WriterState> {
        let why = self.failure.lock().clone()?;
        Some(match self.is_overtaken.load(Ordering::Acquire) {
            true => WriterState::Overtaken(why),
            false => WriterState::Failed(why),
        })
    }

    /// Ends writing in good order.
    pub(crate) fn close(&self) {
        let mut failure = self.failure.lock();
        failure.get_or_insert_with(|| "it is closed".to_owned());
    }

    /// The commit with which this writer began.
    pub(crate) fn writer(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn new_object(&self) -> ObjectName {
        ObjectName::Data {
            epoch: self.epoch,
            number: self.next_object.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Begins to upload a file's dirty bytes, if there are many. Waits while others are on the way.
    pub(crate) fn upload(self: &Arc<Self>, file: &Arc<File>) {
        // Before anything is taken: those who wait have added one write each.
        {
            let mut uploads = self.uploads.lock();
            while *uploads >= UPLOADS {
                self.uploaded.wait(&mut uploads);
            }
            *uploads += 1;
        }
        let Some((upload, taken)) = file.take_for_upload(PART) else {
            self.upload_is_over();
            return;
        };
        let (shared, file, object) = (self.clone(), file.clone(), self.new_object());
        let parts: Vec<Bytes> = taken.iter().map(|(_, bytes)| bytes.clone()).collect();
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.objects.client.clone().spawn(async move {
            let put = shared.objects.client.put(object.to_string(), parts.clone());
            let done = put.await;
            let after = move || {
                match done {
                    Ok(()) => {
                        shared.objects.keep(object, &parts);
                        file.sent(upload, &taken, object, size);
                    }
                    Err(e) => {
                        shared.fail(&e);
                        file.unsendable(upload);
                    }
                }
                shared.upload_is_over();
            };
            // It writes to the cache.
            let _ = tokio::task::spawn_blocking(after).await;
        });
    }

    fn upload_is_over(&self) {
        *self.uploads.lock() -= 1;
        self.uploaded.notify_one();
    }

    /// Objects that open files without a name have bytes in.
    pub(crate) fn held_objects(&self) -> std::collections::BTreeSet<ObjectName> {
        let mut removed = self.removed.lock();
        removed.retain(|file| file.strong_count() > 0);
        let files: Vec<_> = removed.iter().filter_map(Weak::upgrade).collect();
        drop(removed);
        files.iter().flat_map(|file| file.objects()).collect()
    }

    /// The open files, by number.
    pub(crate) fn files(&self) -> BTreeMap<u64, Arc<File>> {
        let names = self.names.lock();
        let files = names.entries.values().filter_map(|node| match node {
            Node::File(file) => Some((file.number, file.clone())),
            Node::Directory => None,
        });
        files.collect()
    }
}
