//! Requests to the store, for threads that wait: bounded in time, repeated, counted.
//!
//! 1. An error means that the request failed for good, or that the time was up: then nobody knows whether it was carried out. No request
//!    fails because of one try without an answer: its connection may have been dead.
//! 2. Repeating is safe: every object is written once, under a name that nobody else uses. Commits are `commits`' concern.
//!
//! It does not know what the objects mean.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::in_store::{InStore, list_whole, read_whole};
use crate::log::{CommitLog, LogError};
use crate::trying::{Again, Fails, TRY};

/// What an error begins with.
const STORE: &str = "the object store";
/// Requests in flight at once, to the store and to the log.
const IN_FLIGHT: usize = 16;
/// The slowest store, in bytes a second: a try may take that much longer.
const SLOWEST: u64 = 128 << 10;
/// Bytes of a try that itself ends when the store does not answer, however much it transfers.
pub(crate) const ENDLESS: u64 = u64::MAX;
/// How long a refusal for lack of rights is tried again: credentials are renewed, and clocks put right.
const REFUSED: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);

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
    /// Requests to a log that is not the object store. Each try counts.
    pub log: u64,
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    bytes_put: AtomicU64,
    bytes_got: AtomicU64,
    log: AtomicU64,
}

/// What a request to the log of commits is, for the counts: of an object store's log.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Put,
    Get,
    List,
    Delete,
}

/// The last owner may be a task of the runtime itself, which must not wait for the runtime's end.
#[derive(Debug)]
struct Workers(Option<Runtime>);

impl Workers {
    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("there until the end")
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A store, the room's prefix in it, and the log of its commits.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    inner: Arc<Inner>,
    /// The room's name in the log: without slashes around it.
    room: Arc<str>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    log: Arc<dyn CommitLog>,
    prefix: String,
    timeout: Duration,
    counters: Counters,
    permits: Semaphore,
    /// Those of the log, which has others to wait for: what hangs in the store does not hold up commits.
    log_permits: Semaphore,
    workers: Workers,
    /// Without threads, where the log's commits are carried out by who waits for them.
    waiting: Option<Workers>,
}

impl Client {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        log: Option<Arc<dyn CommitLog>>,
        prefix: &str,
        timeout: Duration,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("bucket")
            .enable_all()
            .build()?;
        let waiting = match &log {
            Some(log) if log.is_driven_by_waiter() => {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                Some(Workers(Some(builder.enable_all().build()?)))
            }
            _ => None,
        };
        let prefix = prefix.trim_matches('/');
        let inner = Inner {
            log: log.unwrap_or_else(|| Arc::new(InStore(store.clone()))),
            store,
            prefix: match prefix {
                "" => String::new(),
                prefix => format!("{prefix}/"),
            },
            timeout,
            counters: Counters::default(),
            permits: Semaphore::new(IN_FLIGHT),
            log_permits: Semaphore::new(IN_FLIGHT),
            workers: Workers(Some(runtime)),
            waiting,
        };
        Ok(Self {
            inner: Arc::new(inner),
            room: prefix.into(),
        })
    }

    pub(crate) fn requests(&self) -> Requests {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Requests {
            puts: of(&counters.puts),
            gets: of(&counters.gets),
            lists: of(&counters.lists),
            deletes: of(&counters.deletes),
            bytes_put: of(&counters.bytes_put),
            bytes_got: of(&counters.bytes_got),
            log: of(&counters.log),
        }
    }

    /// Runs a task beside the caller.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.inner.workers.runtime().spawn(task);
    }

    /// Runs what waits beside the caller.
    pub(crate) fn spawn_blocking(&self, task: impl FnOnce() + Send + 'static) {
        self.inner.workers.runtime().spawn_blocking(task);
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

    /// What threads that may wait carry the log's commits out on, where it allows that. It shares no connections with the tasks of
    /// [`spawn`](Self::spawn) and [`wait`](Self::wait): while nobody waits here, nothing is received.
    pub(crate) fn waiting(&self) -> Option<&Runtime> {
        self.inner.waiting.as_ref().map(Workers::runtime)
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}{name}", self.inner.prefix))
    }

    pub(crate) fn log(&self) -> &Arc<dyn CommitLog> {
        &self.inner.log
    }

    /// Where the log is, if it is not in the store.
    pub(crate) fn log_address(&self) -> Option<String> {
        self.inner.log.address()
    }

    /// The name of the room in its log.
    pub(crate) fn room(&self) -> &str {
        &self.room
    }

    /// The same client, with the log's part for a name below the room's.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self {
            inner: self.inner.clone(),
            room: format!("{}{name}", self.inner.prefix).into(),
        }
    }

    /// A request to the log: counted, and tried until it is done or the time is up.
    pub(crate) async fn ask_log<T, F: Future<Output = Result<T, LogError>>>(
        &self,
        what: &str,
        request: Request,
        bytes: u64,
        mut once: impl FnMut() -> F,
    ) -> io::Result<T> {
        let (who, is_elsewhere) = match self.log_address() {
            Some(address) => (format!("the log {address}"), true),
            None => (STORE.to_owned(), false),
        };
        let counters = &self.inner.counters;
        let counted = || {
            match request {
                _ if is_elsewhere => counters.log.fetch_add(1, Ordering::Relaxed),
                Request::Put => {
                    self.count_put(bytes);
                    0
                }
                Request::Get => counters.gets.fetch_add(1, Ordering::Relaxed),
                Request::List => counters.lists.fetch_add(1, Ordering::Relaxed),
                Request::Delete => counters.deletes.fetch_add(1, Ordering::Relaxed),
            };
            once()
        };
        let permits = &self.inner.log_permits;
        Ok(self.attempt(permits, &who, what, bytes, counted).await?)
    }

    /// A request for an object.
    async fn ask_store<T, F: Future<Output = Result<T, object_store::Error>>>(
        &self,
        what: &str,
        bytes: u64,
        once: impl FnMut() -> F,
    ) -> Result<T, Failure> {
        let permits = &self.inner.permits;
        self.attempt(permits, STORE, what, bytes, once).await
    }

    /// Tries until it is done or the time is up, of which waiting for others takes nothing. `bytes`: what a try transfers. Where they take longer
    /// than all the time, a try without an answer is followed by another one.
    async fn attempt<T, E: Fails, F: Future<Output = Result<T, E>>>(
        &self,
        permits: &Semaphore,
        who: &str,
        what: &str,
        bytes: u64,
        mut once: impl FnMut() -> F,
    ) -> Result<T, Failure> {
        let transfer = Duration::from_secs(bytes / SLOWEST);
        let limit = self.inner.timeout;
        let (mut spent, mut unanswered) = (Duration::ZERO, 0);
        let mut pause = FIRST_PAUSE;
        loop {
            let permit = permits.acquire().await.expect("never closed");
            let begin = Instant::now();
            let left = match limit.saturating_sub(spent) {
                Duration::ZERO => limit,
                left => left,
            };
            let result = tokio::time::timeout(left.min(TRY) + transfer, once()).await;
            drop(permit);
            let took = begin.elapsed();
            spent += took;
            let is_unanswered = match &result {
                Err(_) => true,
                Ok(Err(error)) => error.again() == Again::UntilTheEnd && took >= TRY,
                Ok(Ok(_)) => false,
            };
            unanswered += u32::from(is_unanswered);
            let is_first_unanswered = is_unanswered && unanswered == 1;
            let (lasting, why) = match &result {
                Ok(Ok(_)) => {
                    let Ok(Ok(done)) = result else { unreachable!() };
                    return Ok(done);
                }
                Ok(Err(error)) => match error.again() {
                    Again::Never => (Duration::ZERO, error.words()),
                    Again::Briefly => (REFUSED.min(limit), error.words()),
                    Again::UntilTheEnd => (limit, error.words()),
                },
                Err(_) => (limit, "no answer".to_owned()),
            };
            if spent + pause >= lasting && !is_first_unanswered {
                return Err(match result {
                    Ok(Err(error)) if lasting < limit => Failure::Refused(io::Error::new(
                        error.kind(),
                        format!("{who}, {what}: {why}"),
                    )),
                    _ => Failure::TimeUp(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("{who}, {what}: failed for {} s: {why}", spent.as_secs()),
                    )),
                });
            }
            tracing::debug!("{what}: {why}; again in {pause:?}");
            tokio::time::sleep(pause).await;
            spent += pause;
            pause = (pause * 2).min(E::LONGEST_PAUSE);
        }
    }

    /// Writes an object under a name that nobody else writes.
    pub(crate) async fn put(&self, name: String, parts: Vec<Bytes>) -> io::Result<()> {
        let payload: PutPayload = parts.into_iter().collect();
        let (path, bytes) = (self.path(&name), payload.content_length() as u64);
        let once = || {
            self.count_put(bytes);
            let put = self
                .inner
                .store
                .put_opts(&path, payload.clone(), PutOptions::default());
            async move { put.await.map(drop) }
        };
        let done = self
            .ask_store(&format!("writing {name}"), bytes, once)
            .await;
        Ok(done?)
    }

    fn count_put(&self, bytes: u64) {
        self.inner.counters.puts.fetch_add(1, Ordering::Relaxed);
        self.inner
            .counters
            .bytes_put
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// A whole object. `NotFound` where it is not there.
    pub(crate) async fn get(&self, name: String) -> io::Result<Bytes> {
        let path = self.path(&name);
        let once = || {
            self.inner.counters.gets.fetch_add(1, Ordering::Relaxed);
            read_whole(&*self.inner.store, &path)
        };
        let got = self
            .ask_store(&format!("reading {name}"), 16 << 20, once)
            .await?;
        self.count_got(&got);
        Ok(got)
    }

    /// A range of an object, whole. `NotFound` where the object is not there.
    pub(crate) async fn get_range(&self, name: String, range: Range<u64>) -> io::Result<Bytes> {
        let (path, len) = (self.path(&name), range.end - range.start);
        let once = || {
            self.inner.counters.gets.fetch_add(1, Ordering::Relaxed);
            let asked = self.inner.store.get_range(&path, range.clone());
            let (path, end) = (&path, range.end);
            async move {
                match asked.await {
                    // That the range is not there is no error of its own kind.
                    Err(e @ object_store::Error::Generic { .. }) => {
                        match self.inner.store.head(path).await {
                            Ok(meta) if meta.size < end => Ok(Bytes::new()),
                            _ => Err(e),
                        }
                    }
                    answered => answered,
                }
            }
        };
        let what = format!("reading {name}");
        let got = self.ask_store(&what, len, once).await?;
        self.count_got(&got);
        match got.len() as u64 == len {
            true => Ok(got),
            false => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{STORE}, {what}: {} bytes instead of {len}", got.len()),
            )),
        }
    }

    /// When an object was written, by the store's clock, in milliseconds since 1970. `NotFound` where it is not there.
    pub(crate) async fn written_ms(&self, name: String) -> io::Result<i64> {
        let path = self.path(&name);
        let once = || {
            self.inner.counters.gets.fetch_add(1, Ordering::Relaxed);
            self.inner.store.head(&path)
        };
        let meta = self
            .ask_store(&format!("looking at {name}"), 0, once)
            .await?;
        Ok(meta.last_modified.timestamp_millis())
    }

    pub(crate) fn count_got(&self, bytes: &Bytes) {
        let bytes = bytes.len() as u64;
        self.inner
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
                Some(after) => self.inner.store.list_with_offset(Some(&path), after),
                None => self.inner.store.list(Some(&path)),
            };
            list_whole(listed)
        };
        let what = format!("listing {directory}");
        let listed = self.ask_store(&what, ENDLESS, once).await?;
        let pages = 1 + listed.len() as u64 / 1000;
        self.inner
            .counters
            .lists
            .fetch_add(pages, Ordering::Relaxed);
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
                    client
                        .inner
                        .counters
                        .deletes
                        .fetch_add(1, Ordering::Relaxed);
                    client.inner.store.delete(&path)
                };
                match client.ask_store(&format!("removing {name}"), 0, once).await {
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
        )?;
        match self.log {
            0 => Ok(()),
            log => write!(f, ", {log} requests to the log"),
        }
    }
}
