//! A database's work: SQLite's transactions of one row, each durable before the next begins.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::sync::{durable_row, measured_changes, one_by_one};
use super::{Bed, Context, Measured, RowName, Work};
use crate::data::{BLOCK, Content, Data};
use crate::store::Powers;
use crate::{Error, Result};

/// Bytes of a row's value.
const VALUE: usize = 100;
/// Most transactions in a round.
const MOST: u32 = 4096;

/// Inserts of one row with `synchronous = FULL`, by how SQLite makes them atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// What is overwritten is first kept in a journal: several syncs for each.
    RollbackJournal,
    /// What is new is appended to a write-ahead log: one sync for each.
    WriteAheadLog,
}

impl Transactions {
    /// Its row's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RollbackJournal => "SQLite transactions, rollback journal",
            Self::WriteAheadLog => "SQLite transactions, write-ahead log",
        }
    }

    /// As `PRAGMA journal_mode` has it.
    fn journal_mode(self) -> &'static str {
        match self {
            Self::RollbackJournal => "delete",
            Self::WriteAheadLog => "wal",
        }
    }
}

impl Work for Transactions {
    fn rows(&self) -> Vec<RowName> {
        durable_row(self.name())
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        (!powers.files).then_some("a database needs files of the host")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        let number = bed.fresh();
        let root = bed
            .store()
            .path()
            .ok_or_else(|| Error::store(bed.label(), "it has no path on the host"))?;
        let rows = Rows {
            path: root.join(format!("database-{number}")),
            version: number,
            data: Data::new(context.seed, 5, Content::Unique),
        };
        let failed = |bed: &Bed, error: rusqlite::Error| {
            Error::store(bed.label(), format!("{}: {error}", self.name()))
        };
        let connection = rows.create(*self).map_err(|error| failed(bed, error))?;
        let done = one_by_one(
            bed,
            context,
            MOST,
            VALUE,
            |row| rows.value(row),
            |row, value| insert(&connection, row, value).map_err(|error| failed(bed, error)),
        )?;
        drop(connection);
        let wrong_bytes = rows
            .wrong_bytes(done.0.operations as u32)
            .map_err(|error| failed(bed, error))?;
        rows.remove()?;
        bed.store().settle()?;
        Ok(measured_changes(bed, context, done, wrong_bytes))
    }
}

/// The table of a round.
struct Rows {
    path: PathBuf,
    version: u32,
    data: Data,
}

impl Rows {
    fn create(&self, kind: Transactions) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.path)?;
        let mode: String = connection.query_row(
            &format!("PRAGMA journal_mode = {}", kind.journal_mode()),
            (),
            |row| row.get(0),
        )?;
        if mode != kind.journal_mode() {
            return Err(rusqlite::Error::InvalidParameterName(format!(
                "the journal mode is {mode}"
            )));
        }
        connection.execute_batch(
            "PRAGMA synchronous = FULL; CREATE TABLE t (number INTEGER PRIMARY KEY, value BLOB NOT NULL)",
        )?;
        Ok(connection)
    }

    fn value(&self, row: u32) -> [u8; VALUE] {
        let mut value = [0; VALUE];
        let at = u64::from(row) * BLOCK as u64;
        self.data.fill(at, &mut value, |_| self.version);
        value
    }

    /// Opens the database again, and compares its first `count` rows; returns how many bytes are not as they were inserted.
    fn wrong_bytes(&self, count: u32) -> rusqlite::Result<u64> {
        let connection = Connection::open(&self.path)?;
        let mut rows = connection.prepare("SELECT value FROM t ORDER BY number")?;
        let found: Vec<Vec<u8>> = rows
            .query_map((), |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let is_right = |row: &u32| {
            found
                .get(*row as usize)
                .is_some_and(|v| *v == self.value(*row))
        };
        let right = (0..count).filter(is_right).count() as u64;
        Ok((u64::from(count) - right) * VALUE as u64)
    }

    fn remove(&self) -> Result<()> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            crate::store::remove_host(Path::new(&path))?;
        }
        Ok(())
    }
}

/// One transaction.
fn insert(connection: &Connection, row: u32, value: &[u8]) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("INSERT INTO t VALUES (?, ?)")?;
    statement.execute(params![row, value]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_lost_or_changed_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        for kind in [Transactions::RollbackJournal, Transactions::WriteAheadLog] {
            let rows = Rows {
                path: dir.path().join(kind.journal_mode()),
                version: 1,
                data: Data::new(1, 5, Content::Unique),
            };
            let connection = rows.create(kind).unwrap();
            for row in 0..10 {
                insert(&connection, row, &rows.value(row)).unwrap();
            }
            assert_eq!(rows.wrong_bytes(10).unwrap(), 0);
            assert_eq!(rows.wrong_bytes(11).unwrap(), VALUE as u64);
            let change = "UPDATE t SET value = zeroblob(100) WHERE number = 3";
            connection.execute(change, ()).unwrap();
            drop(connection);
            assert_eq!(rows.wrong_bytes(10).unwrap(), VALUE as u64);
            rows.remove().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
