//! An object store in memory that fails on purpose: answers lost after success, errors, delays, refusals, repetitions, requests that are carried
//! out long after, an end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use strongroom_bucket::{CommitLog, HEAD, LogPlace};

/// What becomes of a request that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    /// An error, and nothing was done.
    Refused,
    /// An error, although it was done.
    AnswerLost,
    /// No rights.
    Forbidden,
    /// Done twice, as by a proxy that tries again; the second answer is returned.
    Repeated,
    Slow,
    /// An error, and it is done when [`Store::deliver`] is called.
    Late,
}

/// A change on its way.
#[derive(Debug)]
enum Change {
    Put(Path, PutPayload, PutOptions),
    Delete(Path),
}

#[derive(Debug, Default)]
struct Plan {
    fates: VecDeque<Fate>,
    /// Changes that are still answered, and what becomes of the next one. Then nothing is answered any more.
    left: Option<(u64, Fate)>,
    is_gone: bool,
    /// At the end nobody tries again.
    is_final: bool,
    late: Vec<Change>,
    away: bool,
    /// Objects whose path contains this are not read, or not written.
    unreadable: Option<String>,
    unwritable: Option<String>,
    /// So many requests for objects whose path contains this are never answered, nor done.
    mute: Option<(String, u64)>,
    /// For how long each name of a list lets wait for it.
    list_pause: Duration,
    ignores_conditions: bool,
    /// The next creation of a commit is held.
    held: bool,
    is_holding: bool,
    /// Where bad fates come from, at random.
    seed: Option<fastrand::Rng>,
}

/// The double. Clones are one store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Store {
    /// The name of its rooms' part of an engine.
    scope: String,
    /// Where the log of its rooms is, if not in the store.
    place: Option<String>,
    inner: Arc<InMemory>,
    plan: Arc<Mutex<Plan>>,
    reads: Arc<AtomicU64>,
}

fn broken(what: &str) -> Error {
    Error::Generic {
        store: "double",
        source: what.into(),
    }
}

/// For good: a test that cuts everywhere does not wait each time.
fn gone() -> Error {
    Error::NotSupported {
        source: "gone".into(),
    }
}

fn concerns(part: &Option<String>, path: &Path) -> bool {
    part.as_ref()
        .is_some_and(|part| path.as_ref().contains(part))
}

fn forbidden(path: &Path) -> Error {
    Error::PermissionDenied {
        path: path.to_string(),
        source: "no rights".into(),
    }
}

impl Store {
    /// With a log elsewhere the store does not fence, as Garage 2.5 does not.
    pub(crate) fn new() -> Self {
        Self::with_log(crate::engine::place())
    }

    /// A store whose rooms have their commits elsewhere.
    pub(crate) fn with_log(place: Option<String>) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let store = Self {
            place,
            scope: format!("store-{}", STORES.fetch_add(1, Ordering::Relaxed)),
            ..Self::default()
        };
        store.heal();
        store
    }

    /// The engine of this test program, if it has one.
    pub(crate) fn engine(&self) -> Option<Arc<dyn CommitLog>> {
        let place = self.place.as_deref()?;
        Some(LogPlace::parse(place).unwrap().open(&self.scope).unwrap())
    }

    pub(crate) fn has_log(&self) -> bool {
        self.place.is_some()
    }

    /// The log for one opening: a connection of its own, with the fates of the store.
    pub(crate) fn log(&self) -> Option<Arc<dyn CommitLog>> {
        let engine = self.engine()?;
        let store = self.clone();
        Some(Arc::new(crate::log::Faulty { engine, store }))
    }

    /// The next creation of a commit is on its way until [`Self::let_go`].
    pub(crate) fn hold_next(&self) {
        self.plan.lock().unwrap().held = true;
    }

    /// Whether one is.
    pub(crate) fn is_holding(&self) -> bool {
        self.plan.lock().unwrap().is_holding
    }

    pub(crate) fn let_go(&self) {
        self.plan.lock().unwrap().is_holding = false;
    }

    /// Waits as long as this request is to be held.
    pub(crate) async fn held(&self) {
        {
            let mut plan = self.plan.lock().unwrap();
            if !std::mem::take(&mut plan.held) {
                return;
            }
            plan.is_holding = true;
        }
        while self.is_holding() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Whether nothing is answered any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.plan.lock().unwrap().is_gone
    }

    /// The fates of the next requests that change something.
    pub(crate) fn fates(&self, fates: impl IntoIterator<Item = Fate>) {
        self.plan.lock().unwrap().fates = fates.into_iter().collect();
    }

    /// One in four requests has a bad fate.
    pub(crate) fn weather(&self, seed: Option<u64>) {
        self.plan.lock().unwrap().seed = seed.map(fastrand::Rng::with_seed);
    }

    /// After so many more changes the store does not answer any more; the next one may still be done.
    pub(crate) fn end_after(&self, changes: u64, next_is_done: bool) {
        let next = match next_is_done {
            true => Fate::AnswerLost,
            false => Fate::Refused,
        };
        self.plan.lock().unwrap().left = Some((changes, next));
    }

    /// The same with any fate of the next one, and so that nobody waits for an answer.
    pub(crate) fn end_at_once_after(&self, changes: u64, next: Fate) {
        let mut plan = self.plan.lock().unwrap();
        (plan.left, plan.is_final) = (Some((changes, next)), true);
    }

    /// Carries out what is late, in any order.
    pub(crate) fn deliver(&self, random: &mut fastrand::Rng) {
        let mut late = std::mem::take(&mut self.plan.lock().unwrap().late);
        random.shuffle(&mut late);
        for change in late {
            match change {
                Change::Put(path, payload, options) => {
                    let _ = wait(self.inner.put_opts(&path, payload, options));
                }
                Change::Delete(path) => remove(self, path.as_ref()),
            }
        }
    }

    /// Not to be reached.
    pub(crate) fn away(&self, away: bool) {
        self.plan.lock().unwrap().away = away;
    }

    /// Objects whose path contains this are not read, and nobody tries again.
    pub(crate) fn unreadable(&self, part: &str) {
        self.plan.lock().unwrap().unreadable = Some(part.to_owned());
    }

    /// Objects whose path contains this are not written, and nobody tries again.
    pub(crate) fn unwritable(&self, part: &str) {
        self.plan.lock().unwrap().unwritable = Some(part.to_owned());
    }

    /// The next requests for objects whose path contains this are never answered, nor done.
    pub(crate) fn mute(&self, part: &str, requests: u64) {
        self.plan.lock().unwrap().mute = Some((part.to_owned(), requests));
    }

    /// How many are left of them.
    pub(crate) fn left_mute(&self) -> u64 {
        let plan = self.plan.lock().unwrap();
        plan.mute.as_ref().map_or(0, |(_, left)| *left)
    }

    /// Each name of a list lets wait for it so long, as pages do.
    pub(crate) fn list_slowly(&self, pause: Duration) {
        self.plan.lock().unwrap().list_pause = pause;
    }

    async fn answers(&self, path: &Path) {
        let is_mute = match &mut self.plan.lock().unwrap().mute {
            Some((part, left)) if *left > 0 && path.as_ref().contains(&*part) => {
                *left -= 1;
                true
            }
            _ => false,
        };
        if is_mute {
            std::future::pending::<()>().await;
        }
    }

    /// Like Garage 2.5.
    pub(crate) fn ignore_conditions(&self) {
        self.plan.lock().unwrap().ignores_conditions = true;
    }

    pub(crate) fn heal(&self) {
        let mut plan = self.plan.lock().unwrap();
        *plan = Plan {
            ignores_conditions: self.has_log(),
            late: std::mem::take(&mut plan.late),
            ..Plan::default()
        };
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn fate(&self) -> Result<Fate> {
        let mut plan = self.plan.lock().unwrap();
        if plan.away {
            return Err(broken("not to be reached"));
        }
        if plan.is_gone {
            return Err(self.end(&plan));
        }
        if let Some((left, next)) = plan.left {
            if left == 0 {
                plan.is_gone = true;
                return match next {
                    Fate::Refused => Err(self.end(&plan)),
                    next => Ok(next),
                };
            }
            plan.left = Some((left - 1, next));
        }
        if let Some(random) = &mut plan.seed {
            return Ok(match random.u8(0..20) {
                0 => Fate::Refused,
                1 => Fate::AnswerLost,
                2 => Fate::Forbidden,
                3 => Fate::Repeated,
                4 => Fate::Slow,
                5 => Fate::Late,
                _ => Fate::Done,
            });
        }
        Ok(plan.fates.pop_front().unwrap_or(Fate::Done))
    }

    fn end(&self, plan: &Plan) -> Error {
        match self.has_log() || plan.is_final {
            true => gone(),
            false => broken("gone"),
        }
    }

    pub(crate) fn read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut plan = self.plan.lock().unwrap();
        if plan.is_gone {
            return Err(self.end(&plan));
        }
        if plan.away {
            return Err(broken("not to be reached"));
        }
        let is_bad = plan
            .seed
            .as_mut()
            .is_some_and(|random| random.u8(0..10) == 0);
        match is_bad {
            true => Err(broken("503")),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("double")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        if concerns(&self.plan.lock().unwrap().unwritable, path) {
            return Err(gone());
        }
        self.answers(path).await;
        let fate = self.fate()?;
        if path.as_ref().contains("/commits/") {
            self.held().await;
        }
        if self.plan.lock().unwrap().ignores_conditions {
            options.mode = PutMode::Overwrite;
        }
        let put = || self.inner.put_opts(path, payload.clone(), options.clone());
        match fate {
            Fate::Done => put().await,
            Fate::Refused => Err(broken("500")),
            Fate::Forbidden => Err(forbidden(path)),
            Fate::AnswerLost => {
                let _ = put().await;
                Err(broken("the answer was lost"))
            }
            Fate::Repeated => {
                let _ = put().await;
                put().await
            }
            Fate::Slow => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                put().await
            }
            Fate::Late => {
                let change = Change::Put(path.clone(), payload.clone(), options.clone());
                self.plan.lock().unwrap().late.push(change);
                Err(broken("no answer"))
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        _path: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("not used")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.read()?;
        if concerns(&self.plan.lock().unwrap().unreadable, path) {
            return Err(gone());
        }
        self.answers(path).await;
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.fate() {
            Ok(Fate::Done | Fate::Repeated | Fate::Slow) => self.inner.delete_stream(paths),
            Ok(Fate::AnswerLost) => self
                .inner
                .delete_stream(paths)
                .map(|_| Err(broken("the answer was lost")))
                .boxed(),
            Ok(Fate::Late) => {
                let plan = self.plan.clone();
                let late = paths.map(move |path| {
                    let change = Change::Delete(path?);
                    plan.lock().unwrap().late.push(change);
                    Err(broken("no answer"))
                });
                late.boxed()
            }
            Ok(_) => paths.map(|_| Err(broken("500"))).boxed(),
            Err(_) => paths.map(|_| Err(broken("gone"))).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.read() {
            Ok(()) => {
                let pause = self.plan.lock().unwrap().list_pause;
                let listed = self.inner.list(prefix);
                let slowly = listed.then(move |meta| async move {
                    tokio::time::sleep(pause).await;
                    meta
                });
                slowly.boxed()
            }
            Err(e) => futures_util::stream::iter([Err(e)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        unreachable!("not used")
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        unreachable!("not used")
    }
}

const ROOM: &str = "rooms/a";
const COMMITS: &str = "rooms/a/commits";

fn wait<T>(task: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(task)
}

/// The commits that an engine has, past all plans, under the names of objects.
fn commits(store: &Store, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let Some(engine) = store.engine().filter(|_| COMMITS.starts_with(prefix)) else {
        return Vec::new();
    };
    wait(async {
        let mut found = Vec::new();
        for number in engine.list(ROOM, 0).await.unwrap() {
            let record = engine.get(ROOM, number).await.unwrap().unwrap();
            found.push((format!("{COMMITS}/{number:020}"), record.to_vec()));
        }
        found
    })
}

/// Names and sizes below a prefix, past all plans; of the engine too.
pub(crate) fn list(store: &Store, prefix: &str) -> Vec<(String, u64)> {
    let all = contents(store, prefix).into_iter();
    all.map(|(name, bytes)| (name, bytes.len() as u64))
        .collect()
}

/// All objects below a prefix, and all commits of the engine, past all plans.
pub(crate) fn contents(store: &Store, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let mut all = wait(async {
        let listed = store.inner.list(Some(&Path::from(prefix)));
        let listed: Vec<_> = listed.try_collect().await.unwrap();
        let mut found = Vec::new();
        for meta in listed {
            let got = store.inner.get_opts(&meta.location, GetOptions::default());
            let bytes = match got.await {
                Ok(got) => got.bytes().await.unwrap(),
                // A writer removes in the background what nobody needs.
                Err(Error::NotFound { .. }) => continue,
                Err(e) => panic!("{e}"),
            };
            found.push((meta.location.to_string(), bytes.to_vec()));
        }
        found
    });
    all.extend(commits(store, prefix));
    all
}

/// Puts an object or commit, past all plans, over one that is there.
pub(crate) fn overwrite(store: &Store, name: &str, bytes: Vec<u8>) {
    let commit = name
        .strip_prefix(COMMITS)
        .and_then(|name| name.strip_prefix('/'));
    wait(async {
        match (commit, store.engine()) {
            (Some(number), Some(engine)) => {
                let number = number.parse().unwrap();
                engine.prepare().await.unwrap();
                engine.delete(ROOM, &[number]).await.unwrap();
                let before = engine.get(ROOM, number - 1).await.unwrap();
                let before = before.unwrap_or_default();
                let before = &before[..before.len().min(HEAD)];
                let created = engine.create(ROOM, number, bytes.into(), before);
                created.await.unwrap();
            }
            _ => {
                let (path, options) = (Path::from(name), PutOptions::default());
                let put = store.inner.put_opts(&path, bytes.into(), options);
                put.await.unwrap();
            }
        }
    });
}

/// Removes an object, past all plans.
pub(crate) fn remove(store: &Store, name: &str) {
    let paths = futures_util::stream::iter([Ok(Path::from(name))]).boxed();
    let removed: Vec<_> = wait(store.inner.delete_stream(paths).collect());
    removed.into_iter().collect::<Result<Vec<_>>>().unwrap();
}

/// Removes everything below the room's prefix and its commits, past all plans, as a person does with the store's own tool.
pub(crate) fn clear(store: &Store) {
    for (name, _) in list(store, ROOM) {
        remove(store, &name);
    }
    if let Some(engine) = store.engine() {
        wait(async {
            let numbers = engine.list(ROOM, 0).await.unwrap();
            engine.delete(ROOM, &numbers).await.unwrap();
        });
    }
}
