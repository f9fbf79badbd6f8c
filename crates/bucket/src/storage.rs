//! A bucket as [`Storage`]: names, files, syncs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use object_store::ObjectStore;
use storage::{HostStorage, LockGuard, OpenMode, Space, Storage, StorageFile, WriterState, parent};

use crate::cache::Cache;
use crate::client::{Client, Requests};
use crate::clock::Moment;
use crate::commit::Committer;
use crate::creation::{self, found_by_creation, is_founded};
use crate::elsewhere;
use crate::file::{File, Wanted};
use crate::history::{self, History};
use crate::names::DIRECTORIES;
use crate::objects::Objects;
use crate::opening::{
    WriterId, WriterNote, begin, cache_dir, load_and_begin, local, names_of, note_writer,
    nothing_there,
};
use crate::options::Options;
use crate::record::Op;
use crate::shared::{Node, Shared, lease};
use crate::syncs::{self, Commits, sweep};

/// The lock file of a room: of this machine, never in the bucket.
const LOCK: &str = "lock";
/// What an object store can hold, as far as a file system asks.
const SPACE: u64 = 1 << 50;
/// Reads ahead at once.
const AHEAD: usize = 4;
/// How often a read begins again because an object was put elsewhere.
const TRIES: usize = 3;

/// A room's files in a bucket, below a prefix.
///
/// Each sync is one commit, whatever it is of: it makes durable what was written to that file, and all names. Dropping it ends a
/// writer in good order; what was not synced is lost.
#[derive(Debug)]
pub struct BucketStorage {
    shared: Arc<Shared>,
    commits: Option<Arc<Commits>>,
    /// What earlier writers left is being removed, or was.
    is_swept: AtomicBool,
    local: Arc<HostStorage>,
    /// The state it shows, where it is for reading only.
    shown: Option<Arc<History>>,
    id: WriterId,
    _writer: Option<Arc<dyn LockGuard>>,
}

impl BucketStorage {
    /// Makes an empty storage below `prefix`, after a test of what the store can do, and begins to write. `dir` is a directory of this
    /// machine for the cache and locks; it is made where it is missing. What an earlier creation left is removed first: one of this machine, or one
    /// that ended in good order, or any other with `take_over`.
    ///
    /// # Errors
    /// `AlreadyExists` where there is something, `Unsupported` where the store would let each of two writers take itself for the only one.
    pub fn create(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        dir: &Path,
        options: Options,
    ) -> io::Result<Self> {
        let client = Client::new(store, options.log.clone(), prefix, options.timeout)?;
        let (local, writer) = local(dir, false)?;
        let begun_at = Moment::now();
        let (begun, note) = (client.clone(), WriterNote::read(dir));
        let creating = options.clone();
        let history = client.wait(async move {
            let (mut history, is_ours) = found_by_creation(&begun, &note, &creating).await?;
            match begin(&begun, &mut history, &note, is_ours, Vec::new()).await?
                && is_founded(&begun, history.manifest.number).await?
            {
                true => {
                    elsewhere::note(&begun, &history.manifest.origin).await?;
                    Ok(history)
                }
                false => Err(creation::others()),
            }
        })??;
        Self::with(client, history, (local, writer), dir, options, begun_at)
    }

    /// Opens the storage below `prefix`. The rest as for [`create`](Self::create).
    ///
    /// # Errors
    /// `NotFound` where there is none, `ResourceBusy` where another machine has it open and `take_over` is not set, or another process of
    /// this machine.
    pub fn open(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        dir: &Path,
        options: Options,
    ) -> io::Result<Self> {
        let begun = Moment::now();
        let client = Client::new(store, options.log.clone(), prefix, options.timeout)?;
        let (local, writer) = local(dir, options.read_only)?;
        let (loading, read_only) = (client.clone(), options.read_only);
        let (take_over, lease) = (options.take_over, lease(options.lease));
        let note = WriterNote::read(dir);
        let history = client.wait(async move {
            elsewhere::check(&loading).await?;
            if read_only {
                return history::load(&loading).await;
            }
            load_and_begin(&loading, lease, &note, take_over).await
        })??;
        let history = history.ok_or_else(nothing_there)?;
        Self::with(client, history, (local, writer), dir, options, begun)
    }

    fn with(
        client: Client,
        history: History,
        (local, writer): (HostStorage, Option<Box<dyn LockGuard>>),
        dir: &Path,
        options: Options,
        begun: Moment,
    ) -> io::Result<Self> {
        let manifest = &history.manifest;
        let cache = Cache::open(&cache_dir(dir, manifest)?, options.cache_bytes)?;
        let objects = Arc::new(Objects { client, cache });
        let local = Arc::new(local);
        match options.read_only {
            true => Self::over(objects, history, local, None, options),
            false => {
                let mine = (local, writer.map(Arc::from));
                Self::begun(objects, history, mine, dir, options, begun)
            }
        }
    }

    /// The storage of a writer, whose begin is the newest commit, and was not there before `begun`.
    pub(crate) fn begun(
        objects: Arc<Objects>,
        history: History,
        (local, writer): (Arc<HostStorage>, Option<Arc<dyn LockGuard>>),
        dir: &Path,
        options: Options,
        begun: Moment,
    ) -> io::Result<Self> {
        if let Err(e) = note_writer(dir, &history.manifest) {
            // The begin was noted before it was written, which says the same.
            tracing::warn!("{}: {e}", dir.display());
        }
        let storage = Self::over(objects, history, local, writer, options)?;
        storage.shared.prove(begun);
        if let Some(commits) = &storage.commits {
            syncs::begin_heartbeats(&storage.shared, commits)?;
        }
        Ok(storage)
    }

    /// Shows a state of the store.
    fn over(
        objects: Arc<Objects>,
        history: History,
        local: Arc<HostStorage>,
        writer: Option<Arc<dyn LockGuard>>,
        options: Options,
    ) -> io::Result<Self> {
        let manifest = &history.manifest;
        let names = names_of(&history)?;
        let id = WriterId::of(manifest);
        let (epoch, number) = (manifest.epoch, manifest.number);
        let (live, read_only) = (manifest.live(), options.read_only);
        let shared = Arc::new(Shared::new(objects, options, names, epoch)?);
        shared.live.store(live, Ordering::Relaxed);
        shared.number.store(number, Ordering::Release);
        let (commits, shown) = match read_only {
            true => (None, Some(Arc::new(history))),
            false => {
                let committer = Committer::new(history, &shared);
                (Some(Arc::new(Commits::new(committer))), None)
            }
        };
        Ok(Self {
            shared,
            commits,
            is_swept: AtomicBool::new(false),
            local,
            shown,
            id,
            _writer: writer,
        })
    }

    /// The storage as the commits made it that were added since; `None` where there are none. This one stays what it is. For a storage
    /// that was opened for reading only. `look`: find out also whether the store went back, which takes two lists.
    ///
    /// # Errors
    /// `InvalidData` where the store does not go on from what this one shows: it went back, or is damaged.
    pub fn newer(&self, look: bool) -> io::Result<Option<Self>> {
        let Some(shown) = self.shown.clone() else {
            return Err(io::Error::other("a writer does not follow others"));
        };
        let objects = self.shared.objects.clone();
        let client = objects.client.clone();
        let newer = objects
            .client
            .wait(async move { history::follow(&client, &shown, look).await })??;
        let (local, options) = (self.local.clone(), self.shared.options.clone());
        let opened = newer.map(|newer| Self::over(objects, newer, local, None, options));
        opened.transpose()
    }

    /// The number of the commit with which this writer began: higher than that of every writer before.
    pub fn writer(&self) -> u64 {
        self.shared.writer()
    }

    /// This writer, as no other is; of a storage for reading, the one whose state it shows.
    pub fn id(&self) -> WriterId {
        self.id
    }

    /// Returns when it is certain that nobody had overtaken this writer when this was called: commits.
    ///
    /// # Errors
    /// Where somebody has, or nobody knows. Then nothing is written any more.
    pub fn prove(&self) -> io::Result<()> {
        match &self.commits {
            Some(commits) => commits.committer.lock().heartbeat(&self.shared),
            None => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    /// The time since the last commit began of which it is known that it is there: nobody had overtaken this writer then.
    pub fn since_proven(&self) -> Duration {
        self.shared.since_proven()
    }

    /// Whether writing has ended: by a failure, or because somebody overtook this writer.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed()
    }

    /// Requests since it was opened.
    pub fn requests(&self) -> Requests {
        self.shared.objects.client.requests()
    }

    /// How many objects the room has in the store, and their bytes: a list of each 1000 objects.
    pub fn stored(&self) -> io::Result<(u64, u64)> {
        let client = self.shared.objects.client.clone();
        client.clone().wait(async move {
            let (mut objects, mut bytes) = (0, 0);
            for directory in DIRECTORIES {
                let listed = client.list(directory, None).await?;
                objects += listed.len() as u64;
                bytes += listed.iter().map(|(_, size)| size).sum::<u64>();
            }
            Ok((objects, bytes))
        })?
    }

    /// Makes a checkpoint now.
    pub fn checkpoint(&self) -> io::Result<()> {
        self.shared.check()?;
        match &self.commits {
            Some(commits) => commits.committer.lock().checkpoint(&self.shared),
            None => Ok(()),
        }
    }

    /// Leaves the bucket as a writer does that dies now. For tests.
    #[doc(hidden)]
    pub fn die(&self) {
        self.shared.fail(&"died in a test");
    }

    /// Says in the log and in the bucket that this writer has ended.
    fn end(&self, commits: &Commits) -> io::Result<()> {
        let last = {
            let mut committer = commits.committer.lock();
            let last = committer.end(&self.shared)?;
            // Before anybody else can commit: heartbeats, and handles that outlive it. The next writer may have begun.
            self.shared.close();
            last
        };
        let client = self.shared.objects.client.clone();
        client.clone().wait(async move {
            let noted = elsewhere::note_last(&client, last);
            tokio::time::timeout(syncs::REMOVALS, noted).await?
        })?
    }

    fn node(&self, path: &str) -> Option<Node> {
        self.shared.names.lock().entries.get(path).cloned()
    }

    fn must_be_directory(&self, dir: &str) -> io::Result<()> {
        match dir.is_empty() || matches!(self.node(dir), Some(Node::Directory)) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for BucketStorage {
    fn drop(&mut self) {
        if let Some(commits) = &self.commits
            && self.shared.check().is_ok()
        {
            syncs::finish_removals(commits);
            if let Err(e) = self.end(commits) {
                tracing::warn!("it is closed, but not marked so in the bucket: {e}");
            }
            // Handles that outlive it write nothing.
            self.shared.close();
        }
    }
}

impl Storage for BucketStorage {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        if path == LOCK {
            return self.local.open(path, mode);
        }
        let file = match mode {
            OpenMode::CreateNew => {
                self.shared.check()?;
                self.must_be_directory(parent(path))?;
                let mut names = self.shared.names.lock();
                if names.entries.contains_key(path) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let file = Arc::new(File::new(names.next_file));
                names.next_file += 1;
                let (path, node) = (path.to_owned(), Node::File(file.clone()));
                names.entries.insert(path.clone(), node);
                let file_number = file.number;
                names.pending.push(Op::File {
                    path,
                    file: file_number,
                });
                file
            }
            OpenMode::Read | OpenMode::ReadWrite => match self.node(path) {
                Some(Node::File(file)) => file,
                Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
                None => return Err(io::ErrorKind::NotFound.into()),
            },
        };
        Ok(Arc::new(Handle {
            file,
            shared: self.shared.clone(),
            commits: self.commits.clone(),
            is_writable: mode != OpenMode::Read,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.check()?;
        self.must_be_directory(parent(to))?;
        let mut names = self.shared.names.lock();
        let Some(Node::File(file)) = names.entries.get(from).cloned() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if from == to {
            return Ok(());
        }
        match names.entries.get(to) {
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(replaced)) => self.unname(replaced),
            None => {}
        }
        names.entries.remove(from);
        names.entries.insert(to.to_owned(), Node::File(file));
        let (from, to) = (from.to_owned(), to.to_owned());
        names.pending.push(Op::Rename { from, to });
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.shared.check()?;
        let mut names = self.shared.names.lock();
        match names.entries.get(path) {
            Some(Node::File(file)) => self.unname(file),
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        names.entries.remove(path);
        let path = path.to_owned();
        names.pending.push(Op::Remove { path });
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.must_be_directory(dir)?;
        let names = self.shared.names.lock();
        let inside = names.entries.keys().filter(|path| parent(path) == dir);
        let last = |path: &String| path.rsplit('/').next().unwrap_or(path).to_owned();
        Ok(inside.map(last).collect())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.shared.check()?;
        self.must_be_directory(parent(path))?;
        let mut names = self.shared.names.lock();
        if names.entries.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let path = path.to_owned();
        names.entries.insert(path.clone(), Node::Directory);
        names.pending.push(Op::Directory { path });
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.must_be_directory(dir)?;
        match &self.commits {
            Some(commits) => commits.sync(&self.shared, None),
            None => Ok(()),
        }
    }

    fn space(&self) -> io::Result<Space> {
        let free = SPACE.saturating_sub(self.shared.live.load(Ordering::Relaxed));
        Ok(Space {
            total: SPACE,
            free,
            available: free,
        })
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        self.local.lock(path, note)
    }

    fn writer_state(&self) -> io::Result<WriterState> {
        match &self.commits {
            Some(commits) => syncs::writer_state(&self.shared, commits),
            None => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }

    fn accept(&self) {
        if let Some(commits) = &self.commits
            && !self.is_swept.swap(true, Ordering::Relaxed)
        {
            sweep(&self.shared, commits);
        }
    }
}

impl BucketStorage {
    /// A file loses its name; it may be open.
    fn unname(&self, file: &Arc<File>) {
        file.set_removed();
        self.shared.removed.lock().push(Arc::downgrade(file));
    }
}

/// An open file.
#[derive(Debug)]
struct Handle {
    file: Arc<File>,
    shared: Arc<Shared>,
    commits: Option<Arc<Commits>>,
    is_writable: bool,
}

impl Handle {
    fn writable(&self) -> io::Result<()> {
        self.shared.check()?;
        match self.is_writable {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl StorageFile for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut tried = 0;
        loop {
            tried += 1;
            let wanted = self.file.read(buf, offset)?;
            if wanted.is_empty() {
                return Ok(());
            }
            let before = |to: usize, at| self.file.before((offset + to as u64).checked_sub(at)?);
            match self.shared.objects.fill(&wanted, buf, before) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && tried < TRIES => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let why = "; a room that is read while another machine writes to it has to be opened again in time";
                    return Err(io::Error::other(format!("{e}{why}")));
                }
                other => return other,
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        if self.file.write(buf, offset)? >= crate::shared::PART {
            self.shared.upload(&self.file);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.len())
    }

    fn allocated(&self) -> io::Result<Option<u64>> {
        Ok(Some(self.file.allocated()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        match &self.commits {
            Some(commits) => commits.sync(&self.shared, Some(&self.file)),
            None => Ok(()),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.writable()?;
        self.file.punch(offset, len);
        Ok(())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        // A bucket has no space to set aside, and does not fill up.
        self.writable()
    }

    fn prefetch(&self, offset: u64, len: u64) {
        let stored = self.file.stored_within(offset, len);
        if stored.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        if shared.ahead.fetch_add(1, Ordering::Relaxed) >= AHEAD {
            shared.ahead.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.shared.objects.client.spawn_blocking(move || {
            let wanted: Vec<Wanted> = stored
                .into_iter()
                .map(|(stored, len, size)| Wanted {
                    to: 0,
                    len: len as usize,
                    stored,
                    size,
                })
                .collect();
            shared.objects.warm(&wanted);
            shared.ahead.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
