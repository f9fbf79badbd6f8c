//! What the owners of files have, and how much each may have.
//!
//! 1. A change of a file's blocks or owner, its creation and its deletion are counted under the file's lock: the accounts are those of
//!    now, not those of the last commit.
//! 2. Nothing is counted before the first limit is set. A room without limits pays the look at one flag.
//! 3. Only what makes an account larger is refused. Calls that are under way at the same moment may together pass a limit by what
//!    they write.
//!
//! It deliberately does not know who asks: a limit holds for the owner of a file, not for the writer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::{Catalog, Inode, InodeNo};
use parking_lot::Mutex;

use crate::blocks::BLOCK;
use crate::{Error, Quota, Result, Used};

/// Rows read at once.
const PAGE: usize = 1024;

/// What a change adds to an account.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct More {
    pub(crate) blocks: u64,
    pub(crate) files: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    blocks: u64,
    files: u64,
}

#[derive(Debug, Default)]
struct Table {
    accounts: HashMap<u32, Account>,
    quotas: HashMap<u32, Quota>,
}

/// The accounts of all owners.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    counting: AtomicBool,
    table: Mutex<Table>,
}

impl Owners {
    pub(crate) fn is_counting(&self) -> bool {
        self.counting.load(Ordering::Relaxed)
    }

    /// Sets the quotas, by number of the owner. They hold when the files are [counted](Self::count).
    pub(crate) fn set_quotas(&self, quotas: HashMap<u32, Quota>) {
        self.table.lock().quotas = quotas;
    }

    /// Begins to count, with all files of the catalog. The caller keeps changes away, and none is pending.
    pub(crate) fn count(&self, catalog: &Catalog) -> Result<()> {
        let mut accounts: HashMap<u32, Account> = HashMap::new();
        let mut after = InodeNo(0);
        loop {
            let page = catalog.all_inodes(after, PAGE)?;
            let Some(last) = page.last() else {
                break;
            };
            after = last.no;
            for inode in &page {
                let account = accounts.entry(inode.uid).or_default();
                account.blocks += inode.blocks;
                account.files += 1;
            }
        }
        self.table.lock().accounts = accounts;
        self.counting.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What an owner has and may have. `None`: nothing is counted.
    pub(crate) fn of(&self, owner: u32) -> Option<(Used, Quota)> {
        if !self.is_counting() {
            return None;
        }
        let table = self.table.lock();
        let account = table.accounts.get(&owner).copied().unwrap_or_default();
        let used = Used {
            bytes: account.blocks.saturating_mul(BLOCK),
            files: account.files,
        };
        Some((used, table.quotas.get(&owner).copied().unwrap_or_default()))
    }

    /// `QuotaExceeded` where an owner may not have so much more.
    pub(crate) fn check(&self, owner: u32, more: More) -> Result<()> {
        let Some((used, quota)) = self.of(owner) else {
            return Ok(());
        };
        let bytes = more.blocks.saturating_mul(BLOCK);
        let passes = |used: u64, more: u64, limit: Option<u64>| {
            more > 0 && limit.is_some_and(|limit| used.saturating_add(more) > limit)
        };
        match passes(used.bytes, bytes, quota.bytes) || passes(used.files, more.files, quota.files)
        {
            true => Err(Error::QuotaExceeded),
            false => Ok(()),
        }
    }

    /// The blocks of a file are `after` now.
    pub(crate) fn blocks_changed(&self, owner: u32, before: u64, after: u64) {
        if before != after {
            self.with(owner, |account| {
                account.blocks = (account.blocks + after).saturating_sub(before);
            });
        }
    }

    /// There is a file more.
    pub(crate) fn came(&self, inode: &Inode) {
        self.with(inode.uid, |account| {
            account.blocks += inode.blocks;
            account.files += 1;
        });
    }

    /// There is a file less.
    pub(crate) fn went(&self, inode: &Inode) {
        self.with(inode.uid, |account| {
            account.blocks = account.blocks.saturating_sub(inode.blocks);
            account.files = account.files.saturating_sub(1);
        });
    }

    fn with(&self, owner: u32, change: impl FnOnce(&mut Account)) {
        if self.is_counting() {
            change(self.table.lock().accounts.entry(owner).or_default());
        }
    }
}
