//! The writer's end of the order of commits: one conditional create each, which makes everything in it durable, and shows whether this is still the writer.
//!
//! 1. One commit at a time. The next one has the next number, and is begun when the one before is durable.
//! 2. Objects are in the store before the commit that refers to them is created, and are removed some time after the commit that stops
//!    referring to them is durable.
//! 3. A commit that is not known to be ours ends writing: nothing behind it is acknowledged.
//! 4. A checkpoint is a state in one object, after which the commits before it are not needed. One that fails is made later.
//! 5. An object that cannot be read stays where it is, and keeps no checkpoint from being made.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::clock::Moment;
use crate::file::{File, Place, Wanted, data};
use crate::history::{History, new_id};
use crate::manifest::{Manifest, Stored};
use crate::names::{self, ObjectName};
use crate::pieces::Source;
use crate::record::{Op, Record};
use crate::removals::Removals;
use crate::shared::{PART, Shared};

/// Bytes that a commit carries itself; more go into objects of their own first.
const INLINE: u64 = 1 << 20;
/// Bytes that are too few for one more object.
const REST: u64 = 256 << 10;
/// Bytes of thin objects that one checkpoint moves.
const MOVED: u64 = 32 << 20;
/// How long thin objects are left alone after the store did not answer for one.
const LEFT_ALONE: Duration = Duration::from_secs(600);
/// Commits after a checkpoint that failed, before the next try.
const PAUSE: u64 = 64;

/// The writer's end of the history.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) manifest: Manifest,
    /// Bytes in commits behind the checkpoint.
    bodies: BTreeMap<u64, Bytes>,
    /// The commit of the last checkpoint, and behind which one the next is due.
    checkpoint: u64,
    next_checkpoint: u64,
    /// No checkpoint is due before this commit, however many bytes commits have: one has just failed.
    not_before: u64,
    /// Thin objects that could not be read: left alone by this writer.
    unreadable: BTreeSet<ObjectName>,
    /// Until when thin objects are left alone.
    thin_rest: Option<Instant>,
    /// The head of the last commit's record in the log.
    head: Bytes,
    /// What is removed in time.
    pub(crate) removals: Removals,
}

/// A file's bytes and where a commit puts them.
struct Put {
    file: Arc<File>,
    offset: u64,
    bytes: Bytes,
}

fn sum(puts: &[Put]) -> u64 {
    puts.iter().map(|put| put.bytes.len() as u64).sum()
}

impl Committer {
    pub(crate) fn new(history: History, shared: &Shared) -> Self {
        let History {
            manifest,
            checkpoint,
            bodies,
            head,
        } = history;
        Self {
            next_checkpoint: checkpoint + shared.options.checkpoint_commits,
            removals: Removals::new(&manifest),
            manifest,
            bodies,
            checkpoint,
            not_before: 0,
            unreadable: BTreeSet::new(),
            thin_rest: None,
            head,
        }
    }

    /// The commit of the last checkpoint; zero: there is none.
    pub(crate) fn checkpoint_number(&self) -> u64 {
        self.checkpoint
    }

    /// Makes the names durable, and what was written to these files.
    pub(crate) fn commit(&mut self, shared: &Shared, files: &[Arc<File>]) -> io::Result<()> {
        shared.check()?;
        self.make_room(shared)?;
        let mut ops = std::mem::take(&mut shared.names.lock().pending);
        let mut puts = Vec::new();
        let mut seen = BTreeSet::new();
        for file in files {
            if file.is_removed() || !seen.insert(file.number) {
                continue;
            }
            let changes = file.take_changes();
            for (name, size) in changes.objects {
                let known = self.manifest.objects.contains_key(&name);
                if !known && !has_object(&ops, name) {
                    ops.push(Op::Object { name, size });
                }
            }
            ops.extend(changes.ops);
            puts.extend(changes.unsent.into_iter().map(|(offset, bytes)| Put {
                file: file.clone(),
                offset,
                bytes,
            }));
        }
        if ops.is_empty() && puts.is_empty() {
            self.carry_out_removals(shared);
            return Ok(());
        }
        let done = self.write(shared, ops, puts);
        done.map_err(|e| shared.fail(&e))?;
        self.look_after(shared)
    }

    /// Makes a checkpoint before another commit where too many bytes wait for one: they are in memory. Where it fails, writing ends, as
    /// with everything that the store does not take for so long.
    fn make_room(&mut self, shared: &Shared) -> io::Result<()> {
        let waiting = self.waiting();
        if waiting < shared.options.waiting_bytes {
            return Ok(());
        }
        self.try_checkpoint(shared).map_err(|e| {
            let why = format!("{waiting} bytes of commits wait for a checkpoint, which fails: {e}");
            shared.fail(&why)
        })
    }

    /// Bytes in commits that wait for a checkpoint.
    fn waiting(&self) -> u64 {
        self.bodies.values().map(|body| body.len() as u64).sum()
    }

    /// Commits nothing, which shows that this writer lives and was not overtaken.
    pub(crate) fn heartbeat(&mut self, shared: &Shared) -> io::Result<()> {
        shared.check()?;
        self.empty_commit(shared)?;
        self.look_after(shared)
    }

    fn empty_commit(&mut self, shared: &Shared) -> io::Result<()> {
        let done = self.append(shared, shared.lease(), Bytes::new());
        done.map_err(|e| shared.fail(&e))
    }

    /// Waits for a task, and commits meanwhile as often as it must.
    fn meanwhile<T: Send + 'static>(
        &mut self,
        shared: &Shared,
        task: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let client = shared.objects.client.clone();
        if shared.options.lease.is_none() {
            return client.wait(task)?;
        }
        let (send, receive) = mpsc::sync_channel(1);
        client.spawn(async move {
            let _ = send.send(task.await);
        });
        loop {
            let wait = shared.until_heartbeat().unwrap_or(Duration::MAX);
            match receive.recv_timeout(wait) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) => self.empty_commit(shared)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("a request to the store was abandoned"));
                }
            }
        }
    }

    /// Writes objects side by side; returns when all are in the store.
    fn put_objects(
        &mut self,
        shared: &Shared,
        objects: Vec<(ObjectName, Vec<Bytes>)>,
    ) -> io::Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let client = shared.objects.client.clone();
        let puts = objects.clone();
        self.meanwhile(shared, async move {
            let puts = puts.into_iter();
            let puts = puts.map(|(name, parts)| client.put(name.to_string(), parts));
            futures_util::future::try_join_all(puts).await
        })?;
        for (name, parts) in &objects {
            shared.objects.keep(*name, parts);
        }
        Ok(())
    }

    /// Begins to remove what no reader needs any more.
    pub(crate) fn carry_out_removals(&mut self, shared: &Shared) {
        self.removals.carry_out(&self.manifest, shared);
    }

    /// Removes what is not needed any more, and makes a checkpoint when one is due.
    fn look_after(&mut self, shared: &Shared) -> io::Result<()> {
        self.carry_out_removals(shared);
        let (number, most) = (self.manifest.number, shared.options.checkpoint_bytes);
        if number >= self.next_checkpoint || number >= self.not_before && self.waiting() >= most {
            self.checkpoint(shared)?;
        }
        Ok(())
    }

    /// Puts data into objects and the commit, and creates that.
    fn write(&mut self, shared: &Shared, mut ops: Vec<Op>, puts: Vec<Put>) -> io::Result<()> {
        let mut groups: Vec<Vec<Put>> = Vec::new();
        let mut rest = puts;
        let inline = INLINE.min(shared.objects.client.log().inline_max());
        while sum(&rest)
            > if groups.is_empty() {
                inline
            } else {
                inline.min(REST)
            }
        {
            let mut len = 0;
            let end = rest.iter().position(|put| {
                len += put.bytes.len() as u64;
                len >= PART
            });
            let behind = rest.split_off(end.map_or(rest.len(), |end| end + 1));
            groups.push(std::mem::replace(&mut rest, behind));
        }
        let mut settled = Vec::new();
        let mut objects = Vec::new();
        for group in groups {
            let (name, size) = (shared.new_object(), sum(&group));
            ops.push(Op::Object { name, size });
            let parts = group.iter().map(|put| put.bytes.clone()).collect();
            objects.push((name, parts));
            let mut at = 0;
            for put in group {
                let stored = Stored { object: name, at };
                at += put.bytes.len() as u64;
                settled.push((put, Place::Stored { stored, size }));
            }
        }
        self.put_objects(shared, objects)?;
        let object = ObjectName::Commit(self.manifest.number + 1);
        let mut body = BytesMut::with_capacity(sum(&rest) as usize);
        for put in &rest {
            body.extend_from_slice(&put.bytes);
        }
        let body = body.freeze();
        let mut at = 0;
        for put in rest {
            let len = put.bytes.len() as u64;
            let place = Place::Inline {
                stored: Stored { object, at },
                bytes: body.slice(at as usize..(at + len) as usize),
            };
            settled.push((put, place));
            at += len;
        }
        for (put, place) in &settled {
            let (Place::Inline { stored, .. } | Place::Stored { stored, .. }) = place else {
                unreachable!("has just got a place");
            };
            let len = put.bytes.len() as u64;
            ops.push(data(put.file.number, put.offset, len, *stored));
        }
        self.append(shared, ops, body)?;
        for (put, place) in settled {
            let len = put.bytes.len() as u64;
            put.file
                .settle(put.offset, &put.bytes, |by| place.skip(by).keep(len - by));
        }
        Ok(())
    }

    /// Creates the next commit.
    fn append(&mut self, shared: &Shared, mut ops: Vec<Op>, body: Bytes) -> io::Result<()> {
        ops.extend(
            self.removals
                .take_deleted()
                .into_iter()
                .map(|name| Op::Deleted { name }),
        );
        let record = Record {
            number: self.manifest.number + 1,
            id: new_id()?,
            previous: self.manifest.id,
            ops,
            data: body,
        };
        let (number, parts) = (record.number, record.encode());
        let begun = Moment::now();
        let (client, previous) = (&shared.objects.client, self.head.clone());
        let created = client.create_commit_now(number, parts, previous)?;
        self.head = created.ok_or_else(|| shared.overtaken(record.number))?;
        shared.prove(begun);
        let applied = self.manifest.apply(&record);
        applied.map_err(|why| io::Error::other(format!("our own commit {why}")))?;
        if !record.data.is_empty() {
            self.bodies.insert(record.number, record.data);
        }
        shared.live.store(self.manifest.live(), Ordering::Relaxed);
        shared.number.store(record.number, Ordering::Release);
        Ok(())
    }

    /// The last commit of a writer; returns its number.
    pub(crate) fn end(&mut self, shared: &Shared) -> io::Result<u64> {
        shared.check()?;
        self.append(shared, vec![Op::End], Bytes::new())?;
        Ok(self.manifest.number)
    }

    /// Makes a checkpoint. `Err` where that ended writing; what else fails is done later.
    pub(crate) fn checkpoint(&mut self, shared: &Shared) -> io::Result<()> {
        let done = self.try_checkpoint(shared);
        if let Err(e) = done {
            shared.check()?;
            tracing::warn!("a checkpoint has to wait: {e}");
        }
        Ok(())
    }

    fn try_checkpoint(&mut self, shared: &Shared) -> io::Result<()> {
        let every = shared.options.checkpoint_commits;
        if self.manifest.number == self.checkpoint {
            // It is there, and would be removed as the one before itself.
            return Ok(());
        }
        self.not_before = self.manifest.number + every.min(PAUSE);
        self.next_checkpoint = self.not_before;
        let moved = self.moved(shared)?;
        if !moved.is_empty() {
            self.relocate(shared, moved).map_err(|e| shared.fail(&e))?;
        }
        self.manifest.forget_idle_commits();
        self.bodies.clear();
        let number = self.manifest.number;
        let has_log = shared.objects.client.log_address().is_some();
        let (name, parts) = (names::checkpoint(number), self.manifest.encode(has_log));
        let client = shared.objects.client.clone();
        self.meanwhile(shared, async move { client.put(name, parts).await })?;
        let begins = &self.manifest.begins;
        let before = (self.checkpoint..number).filter(|n| *n > 0 && !begins.contains(n));
        let commits = before.collect();
        let old = (self.checkpoint > 0).then(|| names::checkpoint(self.checkpoint));
        let old = old.into_iter().collect();
        self.removals.plan(commits, old, Instant::now());
        self.checkpoint = number;
        self.not_before = number;
        self.next_checkpoint = number + every;
        Ok(())
    }

    /// The pieces of files in objects of which less than half is in use: as much as one checkpoint moves.
    fn thin(&mut self) -> BTreeMap<ObjectName, Vec<Piece>> {
        if self.thin_rest.is_some_and(|until| Instant::now() < until) {
            return BTreeMap::new();
        }
        let mut budget = MOVED;
        let mut thin = BTreeMap::new();
        for (name, object) in &self.manifest.objects {
            let is_data = matches!(name, ObjectName::Data { .. });
            let is_thin = object.live > 0 && object.live * 2 < object.size;
            if is_data && is_thin && object.live <= budget && !self.unreadable.contains(name) {
                budget -= object.live;
                thin.insert(*name, Vec::new());
            }
        }
        for piece in self.pieces() {
            if let Some(pieces) = thin.get_mut(&piece.from.object) {
                pieces.push(piece);
            }
        }
        thin
    }

    fn pieces(&self) -> impl Iterator<Item = Piece> {
        let files = self.manifest.files.iter();
        let pieces = files.flat_map(|(file, map)| map.pieces.iter().map(|piece| (*file, piece)));
        pieces.map(|(file, piece)| Piece {
            file,
            offset: piece.offset,
            len: piece.len,
            from: piece.source,
        })
    }

    /// What is left of thin objects. One that cannot be read stays where it is. Where the store did not answer, no other is asked for, for a time:
    /// syncs wait meanwhile.
    fn read_thin(&mut self, shared: &Shared) -> io::Result<Vec<(Piece, Bytes)>> {
        let mut read = Vec::new();
        for (name, pieces) in self.thin() {
            let (objects, size) = (shared.objects.clone(), self.manifest.objects[&name].size);
            let fetch = move || {
                let each = pieces.into_iter().map(|piece| {
                    let mut bytes = vec![0; piece.len as usize];
                    let wanted = Wanted {
                        to: 0,
                        len: bytes.len(),
                        stored: piece.from,
                        size,
                    };
                    objects.fill(&[wanted], &mut bytes, |_, _| None)?;
                    Ok((piece, Bytes::from(bytes)))
                });
                each.collect::<io::Result<Vec<_>>>()
            };
            let fetched = self.meanwhile(shared, async move {
                tokio::task::spawn_blocking(fetch)
                    .await
                    .map_err(io::Error::other)?
            });
            match fetched {
                Ok(pieces) => read.extend(pieces),
                Err(e) => {
                    shared.check()?;
                    tracing::warn!("{name} cannot be read, and stays where it is: {e}");
                    self.unreadable.insert(name);
                    if e.kind() == io::ErrorKind::TimedOut {
                        self.thin_rest = Some(Instant::now() + LEFT_ALONE);
                        break;
                    }
                }
            }
        }
        Ok(read)
    }

    /// Copies what commits carry, and what is left of thin objects, into new objects. Returns what went where.
    fn moved(&mut self, shared: &Shared) -> io::Result<Vec<Moved>> {
        let mut pieces = self.read_thin(shared)?;
        for piece in self.pieces() {
            if let ObjectName::Commit(number) = piece.from.object {
                let body = self.bodies.get(&number).ok_or_else(|| {
                    io::Error::other(format!("the bytes of commit {number} are not here"))
                })?;
                let at = piece.from.at as usize;
                let bytes = body.slice(at..at + piece.len as usize);
                pieces.push((piece, bytes));
            }
        }
        // What was neighbours stays so.
        pieces.sort_by_key(|(piece, _)| (piece.file, piece.offset));
        let mut moved = Vec::new();
        let mut objects: Vec<(ObjectName, Vec<Bytes>)> = Vec::new();
        let mut at = PART;
        for (piece, bytes) in pieces {
            if at >= PART {
                objects.push((shared.new_object(), Vec::new()));
                at = 0;
            }
            let (object, parts) = objects.last_mut().expect("just added");
            let object = *object;
            moved.push(Moved {
                to: Stored { object, at },
                piece,
            });
            at += bytes.len() as u64;
            parts.push(bytes);
        }
        self.put_objects(shared, objects)?;
        Ok(moved)
    }

    /// Commits that bytes are elsewhere, and has them read there.
    fn relocate(&mut self, shared: &Shared, moved: Vec<Moved>) -> io::Result<()> {
        let mut sizes: BTreeMap<ObjectName, u64> = BTreeMap::new();
        for moved in &moved {
            *sizes.entry(moved.to.object).or_default() += moved.piece.len;
        }
        let objects = sizes.iter();
        let mut ops: Vec<Op> = objects
            .map(|(name, size)| Op::Object {
                name: *name,
                size: *size,
            })
            .collect();
        let puts = moved.iter().map(|Moved { piece, to }| (piece, to));
        ops.extend(puts.map(|(piece, to)| data(piece.file, piece.offset, piece.len, *to)));
        self.append(shared, ops, Bytes::new())?;
        let files = shared.files();
        for Moved { piece, to } in moved {
            if let Some(file) = files.get(&piece.file) {
                let place = Place::Stored {
                    stored: to,
                    size: sizes[&to.object],
                };
                file.relocate(piece.offset, piece.len, piece.from, &place);
            }
        }
        Ok(())
    }
}

/// Bytes of a file, and where they are.
struct Piece {
    file: u64,
    offset: u64,
    len: u64,
    from: Stored,
}

/// Bytes that are in another object too.
struct Moved {
    piece: Piece,
    to: Stored,
}

fn has_object(ops: &[Op], object: ObjectName) -> bool {
    let mut ops = ops.iter();
    ops.any(|op| matches!(op, Op::Object { name, .. } if *name == object))
}
