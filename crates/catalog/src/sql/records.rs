//! Records of the log: appending them, and bringing a catalog up to date by those that follow its last commit.

use std::sync::atomic::Ordering;

use segments::SealedUnits;
use storage::spans;

use super::maps::Edits;
use super::open::at;
use super::rows::damaged;
use super::{Catalog, Failure, OpenOptions, State, schema};
use crate::log::file::{self, Found, LogFile};
use crate::log::{self, Link, Replayed};
use crate::{CatalogError, Result, Taken};

/// Commits after which a log that could not be created is tried again.
const RETRY: u64 = 1000;

impl State {
    pub(super) fn find_anchor(&mut self) -> Result<()> {
        if let Some(anchor) = self.meta(schema::META_ANCHOR)? {
            self.anchor = anchor
                .try_into()
                .map_err(|_| damaged("the anchor of the log is malformed"))?;
            self.wants_log = true;
            self.has_log = true;
        }
        Ok(())
    }

    /// The anchor of the next commit.
    pub(super) fn next_anchor(&self) -> Result<Link> {
        let mut anchor = [0; 16];
        if self.wants_log {
            getrandom::fill(&mut anchor)
                .map_err(|error| CatalogError::Io(format!("no random numbers: {error}")))?;
        }
        Ok(anchor)
    }

    pub(super) fn put_anchor(&self, anchor: Link) -> Result<()> {
        if self.wants_log {
            // A program that does not know the log would pass over what was acknowledged.
            self.raise_version(match self.edits {
                Edits::Wanted => schema::VERSION,
                Edits::Unknown | Edits::Known => schema::LOG_VERSION,
            })?;
            self.statement(schema::PUT_META)?
                .execute((schema::META_ANCHOR, &anchor[..]))?;
        }
        Ok(())
    }

    fn replay(&mut self, record: &log::Record) -> Result<()> {
        let malformed = |what| damaged(format!("record {} of the log: {what}", record.number));
        log::changes(record.changes(), malformed, |operation| match operation {
            Replayed::Changes(changes) => self.apply(changes),
            Replayed::Meta(key, value) => self.set_meta(key, value),
        })?;
        self.generation = record.number;
        Ok(())
    }
}

impl Catalog {
    pub(super) fn append_record(
        &self,
        units: Vec<SealedUnits>,
        taken: Taken<'_>,
    ) -> Result<Option<u64>> {
        let Some(key) = self.key.log().filter(|_| !self.read_only) else {
            return Ok(None);
        };
        let mut log = self.committing.lock();
        let _span = tracing::trace_span!(target: spans::TARGET, spans::CATALOG).entered();
        let (number, mut record) = {
            let mut state = self.lock();
            state.writable()?;
            if state.pending.is_empty() && units.is_empty() {
                return Ok(Some(state.generation));
            }
            if !state.dirty {
                return Ok(None);
            }
            let Some(file) = self.log_of(&mut log, &mut state) else {
                return Ok(None);
            };
            match state.pending.record_len(&units) {
                Some(len) if file.fits(len) => {}
                _ => return Ok(None),
            }
            let next_inode = self.next_inode.load(Ordering::Relaxed);
            let record = state.pending.take(next_inode, &units);
            state.generation += 1;
            (state.generation, record)
        };
        drop(units);
        let appended = match taken() {
            // There is one: it was looked at above, under the same lock.
            true => log
                .as_mut()
                .map_or(Ok(false), |log| log.append(key, number, &mut record)),
            false => Ok(false),
        };
        let mut state = self.lock();
        match appended {
            Ok(true) => state.pending.reuse(record),
            Ok(false) => {
                state.pending.lose();
                return Ok(None);
            }
            Err(error) => {
                state.fail(Failure::Commit);
                return Err(error);
            }
        }
        self.generation.store(number, Ordering::Release);
        Ok(Some(number))
    }

    /// The log, where the last commit knows of it; the next one does.
    fn log_of<'l>(
        &self,
        log: &'l mut Option<LogFile>,
        state: &mut State,
    ) -> Option<&'l mut LogFile> {
        if log.is_none() {
            if state.generation < state.no_log_before {
                return None;
            }
            let empty = Found::at(state.anchor);
            match LogFile::open(&*self.storage, &self.name, &empty) {
                Ok(file) => *log = Some(file),
                Err(error) => {
                    tracing::debug!(%error, "the room has no log: every sync is a commit");
                    state.no_log_before = state.generation + RETRY;
                    return None;
                }
            }
        }
        state.wants_log = true;
        log.as_mut().filter(|_| state.has_log)
    }

    /// Brings the catalog up to date by the records of the log.
    pub(super) fn replay(&self, options: &OpenOptions) -> Result<()> {
        let Some(key) = self.key.log() else {
            return Ok(());
        };
        let mut state = self.lock();
        if !state.has_log {
            return Ok(());
        }
        let found = file::read(
            &*self.storage,
            &self.name,
            key,
            state.generation,
            state.anchor,
        )
        .map_err(|error| at(&file::name(&self.name), &error))?;
        match &found.damage {
            Some(what) if !options.cut_log => {
                return Err(damaged(format!(
                    "{what}: it is damaged, or the catalog was put back to an older state; accepting the rollback opens the room as of record {}",
                    state.generation + found.records.len() as u64
                )));
            }
            _ => {}
        }
        if options.read_only {
            self.unreplayed
                .store(!found.records.is_empty(), Ordering::Relaxed);
            return Ok(());
        }
        if found.records.is_empty() && found.damage.is_none() {
            return Ok(());
        }
        let io = |error| at(&file::name(&self.name), &error);
        let file = LogFile::open(&*self.storage, &self.name, &found).map_err(io)?;
        if let Some(what) = &found.damage {
            tracing::warn!("{what}: the log ends before it");
            file.cut().map_err(io)?;
        }
        *self.committing.lock() = Some(file);
        let mut units = Vec::new();
        state.pending.replaying(true);
        for record in &found.records {
            state.replay(record)?;
            self.next_inode
                .fetch_max(record.next_inode.0, Ordering::Relaxed);
            units.extend(record.units().ok_or_else(|| {
                damaged(format!(
                    "record {} of the log: its data is malformed",
                    record.number
                ))
            })?);
        }
        state.pending.replaying(false);
        self.generation.store(state.generation, Ordering::Release);
        *self.replayed.lock() = units;
        Ok(())
    }
}
