//! Requests to the store, for threads that wait: bounded in time, repeated, counted.
//!
//! 1. An error means that the request failed for good, or that the time was up: then nobody knows whether it was carried out.
//! 2. Repeating is safe: every object is written once, under a name that nobody else uses, or by [`Client::create`], which knows its own
//!    object by what is in it.
//!
//! It does not know what the objects mean.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Requests in flight at once.
const IN_FLIGHT: usize = 16;
/// One try of a request without its bytes.
const TRY: Duration = Duration::from_secs(15);
/// The slowest store, in bytes a second: a try may take that much longer.
const SLOWEST: u64 = 128 << 10;
/// How long a refusal for lack of rights is tried again: credentials are renewed, and clocks put right.
const REFUSED: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Requests since the storage was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Objects written, commits included. Each try counts.
    pub puts: u64,
    /// Objects read, whole or in part.
    pub gets: u64,
    /// Pages of lists.
    pub lists: u64,
    /// Objects removed.
    pub deletes: u64,
    /// Bytes written.
    pub bytes_put: u64,
    /// Bytes read.
    pub bytes_got: u64,
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    bytes_put: AtomicU64,
    bytes_got: AtomicU64,
}

/// What came of a conditional create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    Ours,
    /// Another object has the name.
    Taken,
}

/// The last owner may be a task of the runtime itself, which must not wait for the runtime's end.
#[derive(Debug)]
struct Workers(Option<Runtime>);

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A store and the room's prefix in it.
#[derive(Debug, Clone)]
pub(crate) struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    timeout: Duration,
    counters: Counters,
    permits: Semaphore,
    workers: Workers,
}

/// Whether and how long a request is tried again.
enum Again {
    Never,
    For(Duration),
    UntilTheEnd,
}

fn again(error: &Error) -> Again {
    match error {
        Error::NotFound { .. }
        | Error::AlreadyExists { .. }
        | Error::Precondition { .. }
        | Error::NotImplemented { .. }
        | Error::NotSupported { .. }
        | Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. } => Again::Never,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Again::For(REFUSED),
        _ => Again::UntilTheEnd,
    }
}

/// What a person reads of the store's error, which quotes whole answers.
fn words(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn failed(what: &str, error: &Error) -> io::Error {
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        Error::NotImplemented { .. } | Error::NotSupported { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("the object store, {what}: {}", words(error)))
}

impl Client {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        timeout: Duration,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("bucket")
            .enable_all()
            .build()?;
        let prefix = prefix.trim_matches('/');
        Ok(Self(Arc::new(Inner {
            store,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            timeout,
            counters: Counters::default(),
            permits: Semaphore::new(IN_FLIGHT),
            workers: Workers(Some(runtime)),
        })))
    }

    pub(crate) fn requests(&self) -> Requests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0.counters;
        Requests {
            puts: of(&counters.puts),
            gets: of(&counters.gets),
            lists: of(&counters.lists),
            deletes: of(&counters.deletes),
            bytes_put: of(&counters.bytes_put),
            bytes_got: of(&counters.bytes_got),
        }
    }

    fn runtime(&self) -> &Runtime {
        self.0.workers.0.as_ref().expect("there until the end")
    }

    /// Runs a task beside the caller.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime().spawn(task);
    }

    /// Runs what waits beside the caller.
    pub(crate) fn spawn_blocking(&self, task: impl FnOnce() + Send + 'static) {
        self.runtime().spawn_blocking(task);
    }

    /// Runs a task and waits for it, from any thread that may wait.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let (send, receive) = mpsc::sync_channel(1);
        self.spawn(async move {
            let _ = send.send(task.await);
        });
        receive
            .recv()
            .map_err(|_| io::Error::other("a request to the object store was abandoned"))
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.0.prefix))
    }

    /// Tries until it is done or the time is up. `bytes`: what a try transfers.
    async fn attempt<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        what: &str,
        bytes: u64,
        mut once: impl FnMut() -> F,
    ) -> Result<T, Failure> {
        let transfer = Duration::from_secs(bytes / SLOWEST);
        let (begin, limit) = (Instant::now(), self.0.timeout);
        let mut pause = FIRST_PAUSE;
        loop {
            let permit = self.0.permits.acquire().await.expect("never closed");
            let left = limit.saturating_sub(begin.elapsed());
            let result = tokio::time::timeout(left.min(TRY) + transfer, once()).await;
            drop(permit);
            let (lasting, why) = match &result {
                Ok(Ok(_)) => {
                    let Ok(Ok(done)) = result else { unreachable!() };
                    return Ok(done);
                }
                Ok(Err(error)) => match again(error) {
                    Again::Never => (Duration::ZERO, words(error)),
                    Again::For(time) => (time.min(limit), words(error)),
                    Again::UntilTheEnd => (limit, words(error)),
                },
                Err(_) => (limit, "no answer".to_owned()),
            };
            if begin.elapsed() + pause >= lasting {
                return Err(match result {
                    Ok(Err(error)) if lasting < limit => Failure::Refused(failed(what, &error)),
                    _ => Failure::TimeUp(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!(
                            "the object store, {what}: failed for {} s: {why}",
                            begin.elapsed().as_secs()
                        ),
                    )),
                });
            }
            tracing::debug!("{what}: {why}; again in {pause:?}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Writes an object under a name that nobody else writes.
    pub(crate) async fn put(&self, name: String, parts: Vec<Bytes>) -> io::Result<()> {
        let payload: PutPayload = parts.into_iter().collect();
        let (path, bytes) = (self.path(&name), payload.content_length() as u64);
        let once = || {
            self.count_put(bytes);
            let put = self
                .0
                .store
                .put_opts(&path, payload.clone(), PutOptions::default());
            async move { put.await.map(drop) }
        };
        let done = self.attempt(&format!("writing {name}"), bytes, once).await;
        Ok(done?)
    }

    fn count_put(&self, bytes: u64) {
        self.0.counters.puts.fetch_add(1, Ordering::Relaxed);
        self.0
            .counters
            .bytes_put
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Creates an object whose name others may be creating: one of all wins. The object's bytes must be like those of no other
    /// creation: an answer that was lost is found out by reading.
    pub(crate) async fn create(&self, name: String, parts: Vec<Bytes>) -> io::Result<Created> {
        let payload: PutPayload = parts.iter().cloned().collect();
        let (path, bytes) = (self.path(&name), payload.content_length() as u64);
        let what = format!("creating {name}");
        let end = Instant::now() + self.0.timeout;
        loop {
            let once = || {
                self.count_put(bytes);
                let options = PutOptions::from(PutMode::Create);
                let put = self.0.store.put_opts(&path, payload.clone(), options);
                async move { put.await.map(drop) }
            };
            match self.attempt(&what, bytes, once).await {
                Ok(()) => return Ok(Created::Ours),
                Err(Failure::Refused(e)) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e.into()),
            }
            match self.get(name.clone()).await {
                Ok(there) if parts_equal(&parts, &there) => return Ok(Created::Ours),
                Ok(_) => return Ok(Created::Taken),
                // A conflict of two creations of which neither is done yet, or removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// A whole object. `NotFound` where it is not there.
    pub(crate) async fn get(&self, name: String) -> io::Result<Bytes> {
        let path = self.path(&name);
        let once = || {
            self.0.counters.gets.fetch_add(1, Ordering::Relaxed);
            async { self.0.store.get(&path).await?.bytes().await }
        };
        let got = self
            .attempt(&format!("reading {name}"), 16 << 20, once)
            .await?;
        self.count_got(&got);
        Ok(got)
    }

    /// A range of an object, whole. `NotFound` where the object is not there.
    pub(crate) async fn get_range(&self, name: String, range: Range<u64>) -> io::Result<Bytes> {
        let (path, len) = (self.path(&name), range.end - range.start);
        let once = || {
            self.0.counters.gets.fetch_add(1, Ordering::Relaxed);
            let range = range.clone();
            async { self.0.store.get_range(&path, range).await }
        };
        let what = format!("reading {name}");
        let got = self.attempt(&what, len, once).await?;
        self.count_got(&got);
        match got.len() as u64 == len {
            true => Ok(got),
            false => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "the object store, {what}: {} bytes instead of {len}",
                    got.len()
                ),
            )),
        }
    }

    fn count_got(&self, bytes: &Bytes) {
        let bytes = bytes.len() as u64;
        self.0
            .counters
            .bytes_got
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// Names and sizes in a directory of the prefix, sorted; only names after `after`, itself a name.
    pub(crate) async fn list(
        &self,
        directory: &str,
        after: Option<String>,
    ) -> io::Result<Vec<(String, u64)>> {
        let (path, prefix) = (self.path(directory), self.path(""));
        let after = after.map(|name| self.path(&name));
        let once = || {
            let listed = match &after {
                Some(after) => self.0.store.list_with_offset(Some(&path), after),
                None => self.0.store.list(Some(&path)),
            };
            async { listed.try_collect::<Vec<_>>().await }
        };
        let what = format!("listing {directory}");
        let listed = self.attempt(&what, 0, once).await?;
        let pages = 1 + listed.len() as u64 / 1000;
        self.0.counters.lists.fetch_add(pages, Ordering::Relaxed);
        let below = |location: &Path| {
            let name = location.as_ref().strip_prefix(prefix.as_ref())?;
            Some(name.trim_start_matches('/').to_owned())
        };
        let mut names: Vec<_> = listed
            .into_iter()
            .filter_map(|meta| Some((below(&meta.location)?, meta.size)))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Removes objects, which need not be there. Returns those that are gone; what failed is logged.
    pub(crate) async fn delete(&self, names: Vec<String>) -> Vec<String> {
        let each = names.into_iter().map(|name| {
            let client = self.clone();
            async move {
                let path = client.path(&name);
                let once = || {
                    client.0.counters.deletes.fetch_add(1, Ordering::Relaxed);
                    client.0.store.delete(&path)
                };
                match client.attempt(&format!("removing {name}"), 0, once).await {
                    Ok(()) => Some(name),
                    Err(Failure::Refused(e)) if e.kind() == io::ErrorKind::NotFound => Some(name),
                    Err(e) => {
                        tracing::warn!("{}", io::Error::from(e));
                        None
                    }
                }
            }
        });
        let gone = futures_util::stream::iter(each).buffer_unordered(IN_FLIGHT);
        gone.filter_map(std::future::ready).collect().await
    }
}

fn parts_equal(parts: &[Bytes], whole: &Bytes) -> bool {
    let mut rest = &whole[..];
    for part in parts {
        let Some(after) = rest.strip_prefix(&part[..]) else {
            return false;
        };
        rest = after;
    }
    rest.is_empty()
}

/// How a request failed.
enum Failure {
    /// The store says no.
    Refused(io::Error),
    /// It may have been carried out.
    TimeUp(io::Error),
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(e) | Failure::TimeUp(e) => e,
        }
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writes of {} bytes, {} reads of {} bytes, {} lists, {} removals",
            self.puts, self.bytes_put, self.gets, self.bytes_got, self.lists, self.deletes
        )
    }
}
