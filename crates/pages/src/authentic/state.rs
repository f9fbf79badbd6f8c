//! What the catalog's file and its log know together, and how the table of pages is replaced.
//!
//! 1. `tags` are those of the catalog's file as it is now; `root` is that of the table on disk.
//! 2. The new table is written beside the old one when the file is synced, so that a full disk is found while a
//!    checkpoint can still fail; only a rename is left for the moment at which the log starts over.
//! 3. After a rename that may or may not have happened nothing is written to the log: it is unknown which table it is
//!    based on.

use std::io;
use std::sync::Arc;

use seal::PageDigestKey;
use storage::Storage;

use super::chain::Chain;
use super::{Mac, Tag, authenticating, bad, table, table_path, unexpected};

#[derive(Debug)]
pub(super) struct State {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) path: String,
    pub(super) key: PageDigestKey,
    pub(super) tags: Vec<Tag>,
    root: Option<Mac>,
    /// The table on disk is not that of `tags`.
    changed: bool,
    /// The root of the table of `tags` that is beside the old one, synced.
    prepared: Option<Mac>,
    /// A checkpoint that a crash cut short may have left pages of the log in the catalog's file, which `tags` does not
    /// know.
    pub(super) between: bool,
    /// The catalog's file has been changed since its last sync.
    pub(super) unsynced: bool,
    /// The name of the table on disk is durable for certain: a process that died may have renamed it without a sync.
    named: bool,
    /// A rename of the table, or the sync of its name, failed.
    failed: bool,
    pub(super) chain: Chain,
    pub(super) finding: Option<String>,
}

impl State {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        path: &str,
        key: PageDigestKey,
        known: Option<(Vec<Tag>, Mac)>,
    ) -> Self {
        let (tags, root) = known.map_or((Vec::new(), None), |(tags, root)| (tags, Some(root)));
        Self {
            storage,
            path: path.to_owned(),
            key,
            tags,
            changed: root.is_none(),
            root,
            prepared: None,
            named: false,
            between: false,
            unsynced: false,
            failed: false,
            chain: Chain::default(),
            finding: None,
        }
    }

    /// The catalog is being made: SQLite writes its file before there is a log.
    pub(super) fn is_making(&self) -> bool {
        self.root.is_none()
    }

    /// The code for the header of a log that is based on the table on disk.
    pub(super) fn base(&self, header: &[u8; 32]) -> io::Result<Mac> {
        self.usable()?;
        match &self.root {
            Some(root) => Ok(Chain::base(header, root, &self.key)),
            None => Err(unexpected("a log without a table of pages")),
        }
    }

    /// Whether the log may be written.
    pub(super) fn usable(&self) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other(
                "whether the table of pages was replaced is not known",
            ));
        }
        Ok(())
    }

    /// The tags have changed.
    pub(super) fn changes(&mut self) {
        self.changed = true;
        self.unsynced = true;
        self.prepared = None;
    }

    /// Puts the table of the tags beside the old one.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if !self.changed || self.prepared.is_some() {
            return Ok(());
        }
        let (bytes, root) = authenticating(|| table::encode(&self.tags, &self.key));
        let beside = self.beside();
        storage::write_new(&*self.storage, &beside, &bytes)?;
        self.prepared = Some(root);
        Ok(())
    }

    /// Makes the table that of the catalog's file, durably.
    pub(super) fn persist(&mut self) -> io::Result<()> {
        self.usable()?;
        match (self.changed, self.named) {
            (false, true) => return Ok(()),
            (false, false) => return self.sync_name(),
            (true, _) => {}
        }
        if self.unsynced {
            return Err(unexpected(
                "the log ends before the catalog's file is synced",
            ));
        }
        self.prepare()?;
        let table = table_path(&self.path);
        self.failed = true;
        self.storage.rename(&self.beside(), &table)?;
        self.sync_name()?;
        self.root = self.prepared.take();
        self.changed = false;
        self.between = false;
        Ok(())
    }

    fn sync_name(&mut self) -> io::Result<()> {
        self.failed = true;
        self.storage.sync_dir(storage::parent(&self.path))?;
        self.failed = false;
        self.named = true;
        Ok(())
    }

    fn beside(&self) -> String {
        table_path(&self.path) + ".new"
    }

    /// Notes and says what is wrong with a page.
    pub(super) fn found(&mut self, what: String) -> io::Error {
        self.finding.get_or_insert_with(|| what.clone());
        bad(what)
    }
}
