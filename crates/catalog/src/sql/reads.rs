//! Reading: one statement for each question.

use rusqlite::{CachedStatement, Params, Row};

use super::rows::{self, bound, damaged, to_sql};
use super::{State, schema};
use crate::{CachedReply, ClientKey, DirEntry, Inode, InodeNo, Result};

impl State {
    pub(super) fn statement(&self, sql: &str) -> Result<CachedStatement<'_>> {
        Ok(self.conn.prepare_cached(sql)?)
    }

    /// The first row, if any.
    pub(super) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        row: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(row).transpose()
    }

    /// All rows.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        row: impl Fn(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params)?;
        let mut out = Vec::new();
        while let Some(next) = rows.next()? {
            out.push(row(next)?);
        }
        Ok(out)
    }

    /// Whether a room was ever served that keeps answers.
    pub(super) fn find_replies(&self) -> Result<bool> {
        let tables = self
            .conn
            .query_row(schema::HAS_REPLIES, (), |row| row.get::<_, i64>(0))?;
        Ok(tables > 0)
    }

    pub(super) fn replies(&self, client: ClientKey) -> Result<Vec<CachedReply>> {
        match self.has_replies {
            true => self.all(schema::REPLIES, [&client.0[..]], |row| rows::reply(row, 0)),
            false => Ok(Vec::new()),
        }
    }

    pub(super) fn reply_clients(&self) -> Result<Vec<ClientKey>> {
        let mut clients = Vec::new();
        let mut after = Vec::new();
        // One step for each client, however many slots it has.
        while self.has_replies
            && let Some(client) = self.one(schema::NEXT_CLIENT, [&after[..]], |row| {
                rows::client(row, 0)
            })?
        {
            clients.push(client);
            after = client.0.to_vec();
        }
        Ok(clients)
    }

    pub(super) fn inode(&self, no: InodeNo) -> Result<Option<Inode>> {
        self.one(schema::INODE, [bound(no.0)], rows::inode)
    }

    pub(super) fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.one(
            schema::LOOKUP,
            (bound(parent.0), self.name_hash(name), name),
            |row| self.entry_inode(row),
        )
    }

    /// The inode of an entry's row, which holds the inode's columns and then, last or later, the entry's.
    fn entry_inode(&self, row: &Row<'_>) -> Result<Inode> {
        if row.get::<_, Option<i64>>(0)?.is_none() {
            return Err(damaged("a name leads to an inode that is not there"));
        }
        rows::inode(row)
    }

    pub(super) fn entries(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>> {
        let params = (bound(parent.0), bound(after), bound(limit as u64));
        self.all(schema::ENTRIES, params, |row| rows::entry(row, 0))
    }

    pub(super) fn entries_plus(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        let params = (bound(parent.0), bound(after), bound(limit as u64));
        self.all(schema::ENTRIES_PLUS, params, |row| {
            Ok((
                rows::entry(row, schema::INODE_COLUMNS)?,
                self.entry_inode(row)?,
            ))
        })
    }

    pub(super) fn is_empty(&self, parent: InodeNo) -> Result<bool> {
        Ok(self
            .one(schema::ANY_ENTRY, [bound(parent.0)], |_| Ok(()))?
            .is_none())
    }

    pub(super) fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.one(schema::XATTR, (bound(inode.0), name), |row| {
            rows::bytes(row, 0, "an attribute's value")
        })
    }

    pub(super) fn xattr_names(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.all(schema::XATTR_NAMES, [bound(inode.0)], |row| {
            rows::bytes(row, 0, "an attribute's name")
        })
    }

    pub(super) fn orphans(&self) -> Result<Vec<InodeNo>> {
        self.all(schema::ORPHANS, (), |row| {
            Ok(InodeNo(rows::number(row, 0, "an inode number")?))
        })
    }

    pub(super) fn all_inodes(&self, after: InodeNo, limit: usize) -> Result<Vec<Inode>> {
        self.all(
            schema::ALL_INODES,
            (bound(after.0), bound(limit as u64)),
            rows::inode,
        )
    }

    pub(super) fn all_entries(
        &self,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, DirEntry)>> {
        self.all(
            schema::ALL_ENTRIES,
            (bound(after.0.0), bound(after.1), bound(limit as u64)),
            |row| {
                Ok((
                    InodeNo(rows::number(row, 0, "an entry's directory")?),
                    rows::entry(row, 1)?,
                ))
            },
        )
    }

    pub(super) fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.one(schema::META, [key], |row| {
            rows::bytes(row, 0, "a named value")
        })
    }

    /// SipHash-2-4 of a name under the catalog's own key, so that nobody can choose names that collide.
    pub(super) fn name_hash(&self, name: &[u8]) -> i64 {
        use std::hash::Hasher;
        let mut hasher = siphasher::sip::SipHasher24::new_with_key(&self.hash_key);
        hasher.write(name);
        to_sql(hasher.finish() & self.hash_mask)
    }
}
