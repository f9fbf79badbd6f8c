//! Reading: one statement for each question.

use rusqlite::{CachedStatement, Params, Row};

use super::rows::{self, bound, damaged, to_sql};
use super::{Catalog, State, schema};
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

    pub(super) fn inode(&self, no: InodeNo) -> Result<Option<Inode>> {
        self.one(schema::INODE, [bound(no.0)], rows::inode)
    }

    /// The inode of an entry's row, which holds the inode's columns and then, last or later, the entry's.
    fn entry_inode(&self, row: &Row<'_>) -> Result<Inode> {
        if row.get::<_, Option<i64>>(0)?.is_none() {
            return Err(damaged("a name leads to an inode that is not there"));
        }
        rows::inode(row)
    }

    pub(super) fn xattr(&self, inode: InodeNo, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.one(schema::XATTR, (bound(inode.0), name), |row| {
            rows::bytes(row, 0, "an attribute's value")
        })
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

impl Catalog {
    /// The answers kept for a client, by slot.
    pub fn replies(&self, client: ClientKey) -> Result<Vec<CachedReply>> {
        self.read(|state| match state.has_replies {
            true => state.all(schema::REPLIES, [&client.0[..]], |row| rows::reply(row, 0)),
            false => Ok(Vec::new()),
        })
    }

    /// The clients for which answers are kept, in order.
    pub fn reply_clients(&self) -> Result<Vec<ClientKey>> {
        self.read(|state| {
            let mut clients = Vec::new();
            let mut after = Vec::new();
            // One step for each client, however many slots it has.
            while state.has_replies
                && let Some(client) = state.one(schema::NEXT_CLIENT, [&after[..]], |row| {
                    rows::client(row, 0)
                })?
            {
                clients.push(client);
                after = client.0.to_vec();
            }
            Ok(clients)
        })
    }

    /// Up to `limit` names with a cookie above `after`, in the order of cookies.
    pub fn entries(&self, parent: InodeNo, after: u64, limit: usize) -> Result<Vec<DirEntry>> {
        self.read(|state| {
            let params = (bound(parent.0), bound(after), bound(limit as u64));
            state.all(schema::ENTRIES, params, |row| rows::entry(row, 0))
        })
    }

    /// The same with the inodes: one call.
    pub fn entries_plus(
        &self,
        parent: InodeNo,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(DirEntry, Inode)>> {
        self.read(|state| {
            let params = (bound(parent.0), bound(after), bound(limit as u64));
            state.all(schema::ENTRIES_PLUS, params, |row| {
                Ok((
                    rows::entry(row, schema::INODE_COLUMNS)?,
                    state.entry_inode(row)?,
                ))
            })
        })
    }

    /// Whether a directory has no names.
    pub fn is_empty(&self, parent: InodeNo) -> Result<bool> {
        self.read(|state| {
            Ok(state
                .one(schema::ANY_ENTRY, [bound(parent.0)], |_| Ok(()))?
                .is_none())
        })
    }

    /// The names of all extended attributes, sorted.
    pub fn xattr_names(&self, inode: InodeNo) -> Result<Vec<Vec<u8>>> {
        self.read(|state| {
            state.all(schema::XATTR_NAMES, [bound(inode.0)], |row| {
                rows::bytes(row, 0, "an attribute's name")
            })
        })
    }

    /// Inodes without a name: left by a crash or a kill while open.
    pub fn orphans(&self) -> Result<Vec<InodeNo>> {
        self.read(|state| {
            state.all(schema::ORPHANS, (), |row| {
                Ok(InodeNo(rows::number(row, 0, "an inode number")?))
            })
        })
    }

    /// Up to `limit` inodes with a number above `after`.
    pub fn all_inodes(&self, after: InodeNo, limit: usize) -> Result<Vec<Inode>> {
        self.read(|state| {
            state.all(
                schema::ALL_INODES,
                (bound(after.0), bound(limit as u64)),
                rows::inode,
            )
        })
    }

    /// Up to `limit` names after `(parent, cookie)`, over the whole catalog: what check walks.
    pub fn all_entries(
        &self,
        after: (InodeNo, u64),
        limit: usize,
    ) -> Result<Vec<(InodeNo, DirEntry)>> {
        self.read(|state| {
            state.all(
                schema::ALL_ENTRIES,
                (bound(after.0.0), bound(after.1), bound(limit as u64)),
                |row| {
                    Ok((
                        InodeNo(rows::number(row, 0, "an entry's directory")?),
                        rows::entry(row, 1)?,
                    ))
                },
            )
        })
    }

    /// A name in a directory, with the inode it leads to: one call.
    pub fn lookup(&self, parent: InodeNo, name: &[u8]) -> Result<Option<Inode>> {
        self.read(|state| {
            state.one(
                schema::LOOKUP,
                (bound(parent.0), state.name_hash(name), name),
                |row| state.entry_inode(row),
            )
        })
    }
}
