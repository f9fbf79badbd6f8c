//! A new master key for a room, while it is in use.
//!
//! Steps, each of which leaves a room that opens:
//! 1. the catalog is rewritten under the new key, beside the old one, while no change is made;
//! 2. the header is written with the new key, the old one wrapped in it: from here on the new key opens the room;
//! 3. the new catalog takes the old one's place (an opening that finds it beside the old one does the same);
//! 4. data sealed under the old key is moved, as compaction does, until no segment of it is left;
//! 5. the header forgets the old key.
//!
//! A room on network disks has keys for each position from the new epoch on.
//!
//! What was sealed with the old key and copied away before stays readable with the old key: a rekey shuts nobody out of
//! what he has.

use std::sync::Arc;
use std::time::{Duration, Instant};

use catalog::{Catalog, SegmentAccount};
use seal::{Credential, MasterKey, SlotInfo};

use super::Maintenance;
use super::compact::Tally;
use crate::header::{HeaderState, keyring};
use crate::layout::{CATALOG, NEW_CATALOG, put_new_catalog_in_place};
use crate::reports::{Progress, RekeyReport};
use crate::{Error, Result};

/// Rounds of moving data; each one finds what the one before could not see.
const ROUNDS: usize = 8;
/// How long a reader may keep the old catalog.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A moment between two steps, for tests that look at the disk there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    CatalogWritten,
    HeaderWritten,
    CatalogInPlace,
    Resealed,
}

/// Slots as a message names them.
fn words(slots: &[SlotInfo]) -> String {
    let words = slots.iter().map(|slot| match slot.label.as_str() {
        "" => format!("{} ({})", slot.id, slot.kind.name()),
        label => format!("{} ({}, \"{label}\")", slot.id, slot.kind.name()),
    });
    words.collect::<Vec<_>>().join(", ")
}

impl Maintenance {
    /// Begins a rekey or goes on with one.
    pub(crate) fn rekey(
        &self,
        credential: &Credential,
        keep_slots: bool,
        progress: Progress<'_>,
    ) -> Result<RekeyReport> {
        self.rekey_watched(credential, keep_slots, progress, &|_| {})
    }

    pub(crate) fn rekey_watched(
        &self,
        credential: &Credential,
        keep_slots: bool,
        progress: Progress<'_>,
        watch: &dyn Fn(Step),
    ) -> Result<RekeyReport> {
        let _one = self.moving.lock();
        let mut report = RekeyReport::default();
        if !self.keys.header().header.rekey_under_way() {
            report.dropped_slots = self.begin_rekey(credential, keep_slots, watch)?;
        }
        self.reseal(&mut report, progress)?;
        watch(Step::Resealed);
        if self.old_segments().is_empty() {
            self.finish_rekey()?;
            report.finished = true;
        }
        Ok(report)
    }

    fn begin_rekey(
        &self,
        credential: &Credential,
        keep_slots: bool,
        watch: &dyn Fn(Step),
    ) -> Result<Vec<SlotInfo>> {
        // Nobody may be working on one catalog for long.
        let _swap = self.catalog.for_replacing();
        let new = MasterKey::random();
        // The slow derivations come before anybody is kept waiting; the header cannot change meanwhile.
        let mut header = self.keys.header();
        let slot = header.header.unlock(credential).map_err(|e| match e {
            seal::SealError::WrongCredential { .. } | seal::SealError::NoSuchKind { .. } => {
                Error::WrongCredential(credential.kind().name())
            }
            other => other.into(),
        })?;
        let mut next = HeaderState {
            header: header.header.clone(),
            master: new,
            bytes: Vec::new(),
        };
        let old = (header.header.epoch(), header.master.clone());
        let dropped = next
            .header
            .begin_rekey(&old.1, &next.master, &[(slot.slot, credential)])
            .map_err(Error::from)?;
        drop(slot);
        if keep_slots && !dropped.is_empty() {
            return Err(seal::SealError::SlotsLost(words(&dropped)).into());
        }
        if self.env.options.network_backed {
            next.header.require_position_keys();
        }
        let key = next.header.catalog_key(&next.master);
        let revision = next.header.revision();
        self.commits.commit_and(|| {
            Catalog::remove(&*self.env.storage, NEW_CATALOG)?;
            self.catalog
                .get()
                .copy_to(&self.env.storage, NEW_CATALOG, &key)?;
            watch(Step::CatalogWritten);
            // From here on a failure leaves it open which key the next opening will need: no more changes here.
            let switched = next.store(&*self.env.storage).and_then(|()| {
                watch(Step::HeaderWritten);
                self.exchange_catalog(&key)
            });
            if let Err(e) = switched {
                self.commits.poison();
                return Err(e);
            }
            watch(Step::CatalogInPlace);
            self.blocks
                .segments()
                .set_keyring(keyring(&next, Some(&old)));
            *header = next;
            Ok(())
        })?;
        drop(header);
        self.keys.note_revision(revision)?;
        self.commits.commit_or_defer()?;
        Ok(dropped)
    }

    /// Puts the catalog beside in the place of the one in use. Readers go on: in between they read the one beside. No
    /// change is under way.
    fn exchange_catalog(&self, key: &seal::CatalogKey) -> Result<()> {
        let for_reading = catalog::OpenOptions::for_reading();
        let old = self.catalog.get();
        self.catalog.replace(Arc::new(Catalog::open(
            &self.env.storage,
            NEW_CATALOG,
            key,
            &for_reading,
        )?));
        // What is in its log is in the copy. A log left behind goes with the exchange.
        old.leave_log();
        close(old)?;
        put_new_catalog_in_place(&*self.env.storage)?;
        self.catalog.replace(Arc::new(Catalog::open(
            &self.env.storage,
            CATALOG,
            key,
            &catalog::OpenOptions::default(),
        )?));
        Ok(())
    }

    /// Segments sealed under another epoch than the header's.
    fn old_segments(&self) -> Vec<SegmentAccount> {
        let epoch = self.keys.header().header.epoch();
        self.blocks
            .accounts()
            .iter()
            .filter(|a| a.id.key_epoch != epoch)
            .copied()
            .collect()
    }

    /// Re-encrypts data that is sealed under an older key.
    fn reseal(&self, report: &mut RekeyReport, progress: Progress<'_>) -> Result<()> {
        self.commits.close_segment()?;
        self.commits.commit()?;
        for _ in 0..ROUNDS {
            let old = self.old_segments();
            if old.is_empty() {
                break;
            }
            let count = old.len();
            let mut tally = Tally::default();
            self.move_out(old, &mut tally, progress)?;
            report.segments_resealed += tally.segments;
            report.unreadable = tally.unreadable;
            if tally.stopped || (tally.moved == 0 && self.old_segments().len() == count) {
                break;
            }
        }
        Ok(())
    }

    fn finish_rekey(&self) -> Result<()> {
        self.keys.change_header(|h| {
            h.header.finish_rekey();
            Ok(())
        })?;
        self.blocks
            .segments()
            .set_keyring(keyring(&self.keys.header(), None));
        Ok(())
    }
}

/// Waits for the last reader of a catalog, and closes it.
fn close(catalog: Arc<Catalog>) -> Result<()> {
    let begun = Instant::now();
    while Arc::strong_count(&catalog) > 1 {
        if begun.elapsed() > TIMEOUT {
            return Err(Error::Damaged(
                "the old catalog is still being read after a minute".into(),
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(catalog);
    Ok(())
}

#[cfg(test)]
mod tests;
