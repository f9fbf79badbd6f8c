//! Changing: each [`Change`] is one or two statements; an operation is checked as a whole before its first one runs.
//!
//! What is read seldom is gathered for the commit instead: `gathered`.
//!
//! There is no savepoint around an operation. What can fail once its statements run is a write to the disk or the check
//! of a page, and both make SQLite or SQLCipher roll back the whole transaction anyway.

use pages::authentic::Witness;
use storage::spans;

use super::rows::{self, damaged, is_name, kind_number, to_sql};
use super::{Failure, State, schema};
use crate::log::EntryMap;
use crate::{
    ANSWER_MAX, CachedReply, CatalogError, Change, ClientKey, FileKind, Inode, InodeNo, Result,
};

/// Rough bytes of log that one change can need: the pages it touches in the tables' trees.
pub(super) const LOG_PER_CHANGE: u64 = 3 * super::wal::FRAME;

/// The numbers that every commit writes, as the value of [`schema::META_COUNTERS`]: four little-endian 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) generation: u64,
    pub(super) next_inode: u64,
    pub(super) next_cookie: u64,
    pub(super) inodes: u64,
}

impl Counters {
    pub(super) fn encode(self) -> [u8; 32] {
        let mut out = [0; 32];
        let numbers = [
            self.generation,
            self.next_inode,
            self.next_cookie,
            self.inodes,
        ];
        for (place, number) in out.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([generation, next_inode, next_cookie, inodes], []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let [generation, next_inode, next_cookie, inodes] =
            [generation, next_inode, next_cookie, inodes].map(|number| u64::from_le_bytes(*number));
        let good = [generation, next_inode, next_cookie, inodes]
            .iter()
            .all(|number| *number <= i64::MAX as u64);
        (good && next_inode > InodeNo::ROOT.0 && next_cookie >= schema::FIRST_COOKIE).then_some(
            Self {
                generation,
                next_inode,
                next_cookie,
                inodes,
            },
        )
    }
}

impl State {
    pub(super) fn apply(&mut self, changes: &[Change<'_>]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let checked = self
            .check_snapshots(changes)
            .and_then(|()| self.check_shares(changes))
            .and_then(|()| Ok(log_bytes(changes) + self.past_bytes(changes)?));
        let bytes = checked.map_err(|error| self.note(error))?;
        let mut maps = Vec::with_capacity(changes.len());
        self.changing(bytes, |state| {
            for change in changes {
                maps.push(state.change(change)?);
            }
            state.bound_gathered()
        })?;
        self.pending.note(changes, &maps);
        Ok(())
    }

    pub(super) fn set_meta(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.changing(LOG_PER_CHANGE + value.len() as u64, |state| {
            state.statement(schema::PUT_META)?.execute((key, value))?;
            Ok(())
        })?;
        self.pending.note_meta(key, value);
        Ok(())
    }

    /// Runs statements within the pending transaction.
    pub(super) fn changing<T>(
        &mut self,
        bytes: u64,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.expect(bytes)?;
        if self.conn.is_autocommit() {
            self.statement("BEGIN IMMEDIATE")?.execute(())?;
        }
        let was_dirty = std::mem::replace(&mut self.dirty, true);
        self.applying = true;
        let ran = run(self);
        self.applying = false;
        ran.map_err(|error| {
            // This operation was not acknowledged yet.
            self.dirty = was_dirty;
            let error = self.note(error);
            // The operation may be half done: nothing of this transaction may become durable.
            if self.failed.is_none() {
                self.fail(Failure::Commit);
            }
            error
        })
    }

    /// Reserves room for changes. Where the disk has none, those before are written: they need far less than was reserved for them.
    fn expect(&mut self, bytes: u64) -> Result<()> {
        match self.wal.expect(bytes) {
            Err(CatalogError::NoSpace) if self.dirty && self.wal.expects_any() => {
                self.write_ahead()?;
                self.wal.expect(bytes)
            }
            done => done,
        }
    }

    /// Writes gathered changes to their tables, and pages to SQLite's log.
    pub(super) fn write_ahead(&mut self) -> Result<u64> {
        if !self.dirty {
            return Ok(0);
        }
        self.wal.reserve()?;
        let written = self.changing(0, |state| {
            state.write_gathered()?;
            state.conn.cache_flush()?;
            Ok(state.witness.as_ref().map_or(0, Witness::pending_pages))
        });
        let pages = written.map_err(unrepeatable)?;
        self.wal.written();
        Ok(pages)
    }

    /// Commits; durable once the log is synced.
    pub(super) fn commit(&mut self, next_inode: u64) -> Result<()> {
        self.wal.reserve()?;
        let counters = Counters {
            generation: self.generation + 1,
            next_inode,
            next_cookie: self.next_cookie,
            inodes: self.inodes,
        };
        let anchor = self.next_anchor()?;
        let committed = self
            .write_gathered()
            .and_then(|()| self.put_anchor(anchor))
            .and_then(|()| self.statement(schema::PUT_META))
            .and_then(|mut put| Ok(put.execute((schema::META_COUNTERS, counters.encode()))?))
            .and_then(|_| Ok(self.statement("COMMIT")?.execute(())?));
        if let Err(error) = committed {
            let error = self.note(error);
            if self.failed.is_none() {
                self.fail(Failure::Commit);
            }
            return Err(unrepeatable(error));
        }
        self.generation += 1;
        self.anchor = anchor;
        self.has_log = self.wants_log;
        self.edits.committed(self.has_log);
        self.pending.clear();
        self.dirty = false;
        self.wal.committed();
        Ok(())
    }

    /// Makes a change, and returns what its entry in the log has of its map.
    fn change(&mut self, change: &Change<'_>) -> Result<EntryMap> {
        match *change {
            Change::PutChunk {
                inode,
                index,
                chunk,
            } => return Ok(self.gather_chunk((inode, index), chunk)),
            Change::EditChunk { inode, index, edit } => {
                let mut chunk = self.chunk(inode, index)?;
                edit.apply(&mut chunk);
                return Ok(self.gather_chunk((inode, index), &chunk));
            }
            Change::KeepChunk {
                inode,
                index,
                until,
                kept,
            } => return Ok(self.gather_kept((inode, index, until), kept)),
            Change::EditKept {
                inode,
                index,
                until,
                edit,
            } => {
                let mut kept = self.kept_chunk(inode, index, until)?;
                kept.edit(edit);
                return Ok(self.gather_kept((inode, index, until), &kept));
            }
            Change::PutInode(inode) => self.put_inode(inode),
            Change::DeleteInode(no) => self.delete_inode(no),
            Change::PutEntry {
                parent,
                name,
                inode,
                kind,
            } => self.put_entry(parent, name, inode, kind),
            Change::RemoveEntry { parent, name } => {
                let (parent, hash) = (to_sql(parent.0), self.name_hash(name));
                if self.latest.is_some() {
                    self.keep_entry(parent, hash, name)?;
                }
                self.run(schema::DELETE_ENTRY, (parent, hash, name))
                    .map(drop)
            }
            Change::RenameEntry {
                parent,
                name,
                new_name,
            } => self.rename_entry(parent, name, new_name),
            Change::PutXattr { inode, name, value } => {
                assert!(
                    (1..=255).contains(&name.len()),
                    "an attribute's name has 1 to 255 bytes"
                );
                self.keep_xattr(inode, name)?;
                self.run(schema::PUT_XATTR, (to_sql(inode.0), name, value))
                    .map(drop)
            }
            Change::RemoveXattr { inode, name } => {
                self.keep_xattr(inode, name)?;
                self.run(schema::DELETE_XATTR, (to_sql(inode.0), name))
                    .map(drop)
            }
            Change::PutSegment(account) => {
                let accounts = &mut self.gathered.get_mut().accounts;
                accounts.insert(account.id.no, Some(account));
                Ok(())
            }
            Change::DropSegment(no) => {
                self.gathered.get_mut().accounts.insert(no, None);
                Ok(())
            }
            Change::ShareUnit {
                segment,
                position,
                references,
            } => {
                self.gather_share(segment, position, references);
                Ok(())
            }
            Change::PutReply { client, reply } => self.put_reply(client, reply),
            Change::DropReplies(client) => match self.has_replies {
                true => self.run(schema::DELETE_REPLIES, [&client.0[..]]).map(drop),
                false => Ok(()),
            },
            Change::CreateSnapshot(row) => self.create_snapshot(row),
            Change::RenameSnapshot { no, name } => self.rename_snapshot(no, name),
            Change::DoomSnapshot(no) => self.doom_snapshot(no),
            Change::DropSnapshot(no) => self.drop_snapshot(no),
            Change::MergePast { no, limit } => self.merge_past(no, limit),
            Change::CountSpace {
                since,
                until,
                blocks,
            } => {
                self.gather_space(since, until, blocks);
                Ok(())
            }
        }?;
        Ok(EntryMap::Whole(Vec::new()))
    }

    pub(super) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
        Ok(self.statement(sql)?.execute(params)?)
    }

    fn put_inode(&mut self, inode: &Inode) -> Result<()> {
        assert!(
            inode.no.0 != 0 && inode.mode <= 0o7777,
            "an inode has a number and permission bits"
        );
        if !inode.flags.is_empty() && !self.has_flags {
            self.run(schema::PUT_META, (schema::META_FLAGS, &[1u8][..]))?;
            self.raise_version(schema::FLAGS_VERSION)?;
            self.has_flags = true;
        }
        self.keep_inode(inode.no)?;
        let put = |sql| -> Result<usize> {
            let mut statement = self.statement(sql)?;
            for (index, number) in rows::inode_numbers(inode).iter().enumerate() {
                statement.raw_bind_parameter(index + 1, number)?;
            }
            statement.raw_bind_parameter(schema::INODE_COLUMNS, &inode.target[..])?;
            Ok(statement.raw_execute()?)
        };
        if put(schema::UPDATE_INODE)? == 0 {
            put(schema::INSERT_INODE)?;
            self.inodes += 1;
        }
        Ok(())
    }

    /// From this transaction on, programs that know only older formats refuse the catalog.
    pub(super) fn raise_version(&self, to: u32) -> Result<()> {
        let version = self.meta(schema::META_VERSION)?.unwrap_or_default();
        if decode_version(&version)? < to {
            let version = encode_version(to);
            self.run(schema::PUT_META, (schema::META_VERSION, &version[..]))?;
        }
        Ok(())
    }

    fn delete_inode(&mut self, no: InodeNo) -> Result<()> {
        self.keep_inode(no)?;
        self.keep_xattrs(no)?;
        let key = to_sql(no.0);
        self.inodes -= self.run(schema::DELETE_INODE, [key])? as u64;
        self.run(schema::DELETE_XATTRS, [key])?;
        self.delete_chunks(no)
    }

    fn put_entry(
        &mut self,
        parent: InodeNo,
        name: &[u8],
        inode: InodeNo,
        kind: FileKind,
    ) -> Result<()> {
        assert!(
            is_name(name),
            "a name has 1 to 255 bytes, no slash and no NUL"
        );
        let (parent, hash) = (to_sql(parent.0), self.name_hash(name));
        let (inode, kind) = (to_sql(inode.0), kind_number(kind));
        // With a snapshot, whether the name is there is known before it is pointed elsewhere.
        let is_new = self.latest.is_some() && !self.keep_entry(parent, hash, name)?;
        let point = (parent, hash, name, inode, kind);
        if is_new || self.run(schema::POINT_ENTRY, point)? == 0 {
            let cookie = to_sql(self.next_cookie);
            self.run(
                schema::INSERT_ENTRY,
                (parent, cookie, hash, name, inode, kind),
            )?;
            self.next_cookie += 1;
        }
        Ok(())
    }

    fn rename_entry(&mut self, parent: InodeNo, name: &[u8], new_name: &[u8]) -> Result<()> {
        assert!(
            is_name(new_name),
            "a name has 1 to 255 bytes, no slash and no NUL"
        );
        let (hash, new_hash) = (self.name_hash(name), self.name_hash(new_name));
        if self.latest.is_some() {
            self.keep_entry(to_sql(parent.0), hash, name)?;
        }
        let renamed = self.run(
            schema::RENAME_ENTRY,
            (to_sql(parent.0), hash, name, new_hash, new_name),
        )?;
        match renamed {
            1 => Ok(()),
            // Going on would lose the file its name.
            rows => Err(damaged(format!("a name to be changed has {rows} rows"))),
        }
    }

    fn put_reply(&mut self, client: ClientKey, reply: &CachedReply) -> Result<()> {
        assert!(
            (1..=ANSWER_MAX).contains(&reply.answer.len())
                && (1..=i64::MAX as u64).contains(&reply.sequence),
            "an answer has a number and 1 to 8192 bytes"
        );
        if !self.has_replies {
            self.conn.execute_batch(schema::REPLIES_TABLE)?;
            self.has_replies = true;
        }
        let CachedReply {
            slot,
            sequence,
            answer,
        } = reply;
        let params = (&client.0[..], slot, to_sql(*sequence), &answer[..]);
        self.run(schema::PUT_REPLY, params).map(drop)
    }

    /// Moves the log into the file; with changes pending, after their commit.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        if self.dirty {
            self.checkpoint_wanted = true;
            return Ok(());
        }
        self.checkpoint_wanted = false;
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CHECKPOINT).entered();
        let moved = self
            .conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |row| {
                row.get::<_, i64>(0)
            });
        match moved {
            Ok(0) => Ok(()),
            Ok(_) => Err(CatalogError::Io(
                "the catalog is in use by another process".into(),
            )),
            // The log keeps what could not be moved: nothing is lost, and the next one tries again.
            Err(error) => Err(self.note(error.into())),
        }
    }
}

fn log_bytes(changes: &[Change<'_>]) -> u64 {
    changes
        .iter()
        .map(|change| {
            LOG_PER_CHANGE
                + match change {
                    Change::PutXattr { value, .. } => value.len() as u64,
                    Change::PutChunk { chunk, .. } => chunk.extents().len() as u64 * 32,
                    Change::PutReply { reply, .. } => reply.answer.len() as u64,
                    Change::KeepChunk { kept, .. } => kept.chunk().extents().len() as u64 * 32,
                    // Whatever it is of.
                    Change::EditChunk { .. } | Change::EditKept { .. } => {
                        u64::from(crate::CHUNK_BLOCKS) * 32
                    }
                    _ => 0,
                }
        })
        .sum()
}

/// What a write to SQLite's log says that found no space, although it was reserved: the changes are gone, so it cannot be tried again.
fn unrepeatable(error: CatalogError) -> CatalogError {
    match error {
        CatalogError::NoSpace => CatalogError::Poisoned,
        other => other,
    }
}

pub(super) fn encode_version(version: u32) -> [u8; 4] {
    version.to_le_bytes()
}

pub(super) fn decode_version(bytes: &[u8]) -> Result<u32> {
    let bytes = bytes
        .try_into()
        .map_err(|_| rows::damaged("the format version is not four bytes"))?;
    Ok(u32::from_le_bytes(bytes))
}
