//! What the fuzz target for the catalog's rows tries, and what must hold whatever is in them.
//!
//! 1. A row is read exactly as stored: no number is cut, wrapped or made up.
//! 2. What is read keeps the bounds of the format.
//! 3. What is read and written again is the row it was.
//!
//! The rows come from SQLite, as they do in a room, so that every type can be in every column: tables are `STRICT`,
//! but a page that was put there by someone with the key, or was damaged before it was sealed, need not be.

use std::cell::RefCell;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, ToSql};

use super::super::changes::{Counters, decode_version, encode_version};
use super::{
    chunk, entry, inode, inode_numbers, kept, kind_number, number, past_inode, past_inode_bytes,
    segment, snapshot, to_sql,
};
use crate::{CatalogError, Inode, InodeNo, Result};

/// Columns of the widest row.
const COLUMNS: usize = 20;
const ROW: &str = "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20";

thread_local! {
    static CONNECTION: RefCell<Connection> = RefCell::new(
        Connection::open_in_memory().expect("a database in memory needs no disk"),
    );
}

/// One byte that says what the row is of, then its columns: see [`columns`].
pub fn rows(bytes: &[u8]) {
    let Some((of, bytes)) = bytes.split_first() else {
        return;
    };
    match of % 9 {
        4 => return counters(bytes),
        5 => return version(bytes),
        _ => {}
    }
    let columns = columns(bytes);
    CONNECTION.with_borrow(|connection| {
        let mut statement = connection
            .prepare_cached(ROW)
            .expect("the statement is good");
        for (index, column) in columns.iter().enumerate() {
            statement
                .raw_bind_parameter(index + 1, column)
                .expect("every value can be bound");
        }
        let mut rows = statement.raw_query();
        let row = rows.next().expect("one row").expect("one row");
        let read = match of % 9 {
            0 => an_inode(row, &columns),
            1 => an_entry(row, &columns),
            2 => a_segment(row, &columns),
            6 => a_past_inode(row, &columns),
            7 => a_kept_chunk(row, &columns),
            8 => a_snapshot(row, &columns),
            _ => a_chunk(row, &columns),
        };
        if let Err(error) = read {
            assert!(matches!(error, CatalogError::Damaged(_)), "{error:?}");
            let text = error.to_string();
            assert!(
                text.len() < 300 && !text.chars().any(char::is_control),
                "{text}"
            );
        }
    });
}

/// A value of any of SQLite's types; text need not be UTF-8.
#[derive(Debug, Clone, PartialEq)]
enum Column {
    Of(Value),
    Text(Vec<u8>),
}

impl ToSql for Column {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Of(value) => value.into(),
            Self::Text(bytes) => ValueRef::Text(bytes),
        }))
    }
}

impl Column {
    fn is(&self, number: i64) -> bool {
        *self == Self::Of(Value::Integer(number))
    }

    fn is_blob(&self, bytes: &[u8]) -> bool {
        matches!(self, Self::Of(Value::Blob(own)) if own == bytes)
    }
}

/// For each column one byte for its type, then eight bytes of a number, or two bytes of a length and as many bytes; the
/// first byte of an integer is repeated eight times where its type says so. What is missing is NULL.
fn columns(mut bytes: &[u8]) -> Vec<Column> {
    let mut columns = Vec::with_capacity(COLUMNS);
    while columns.len() < COLUMNS {
        columns.push(column(&mut bytes).unwrap_or(Column::Of(Value::Null)));
    }
    columns
}

fn column(bytes: &mut &[u8]) -> Option<Column> {
    let kind = *bytes.split_off_first()?;
    let mut run = || {
        let len = u16::from_le_bytes(*bytes.split_off(..2)?.first_chunk()?);
        let len = usize::from(len).min(bytes.len());
        bytes.split_off(..len).map(<[u8]>::to_vec)
    };
    Some(match kind % 6 {
        0 => Column::Of(Value::Null),
        1 => Column::Of(Value::Integer((*bytes.split_off_first()?).into())),
        2 => Column::Of(Value::Integer(i64::from_le_bytes(
            *bytes.split_off(..8)?.first_chunk()?,
        ))),
        3 => match f64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?) {
            // As SQLite keeps it.
            number if number.is_nan() => Column::Of(Value::Null),
            number => Column::Of(Value::Real(number)),
        },
        4 => Column::Text(run()?),
        _ => Column::Of(Value::Blob(run()?)),
    })
}

fn an_inode(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    let inode = inode(row)?;
    assert!(inode.no.0 != 0 && inode.mode <= 0o7777);
    for time in [inode.atime, inode.mtime, inode.ctime, inode.btime] {
        assert!(time.nanos < 1_000_000_000);
    }
    let written = inode_numbers(&inode);
    for (at, (number, column)) in written.iter().zip(columns).enumerate() {
        assert!(
            column.is(*number),
            "column {at}: {column:?} read as {number}"
        );
    }
    assert!(columns[written.len()].is_blob(&inode.target));
    Ok(())
}

fn an_entry(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    let entry = entry(row, 0)?;
    assert!((1..=255).contains(&entry.name.len()));
    assert!(entry.name.iter().all(|byte| *byte != 0 && *byte != b'/'));
    assert!(entry.cookie >= 16 && entry.inode.0 != 0);
    assert!(columns[0].is(to_sql(entry.cookie)) && columns[1].is_blob(&entry.name));
    assert!(columns[2].is(to_sql(entry.inode.0)) && columns[3].is(kind_number(entry.kind)));
    Ok(())
}

fn a_segment(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    let account = segment(row)?;
    assert!(account.id.no.0 != 0);
    assert!(columns[0].is(to_sql(account.id.no.0)) && columns[1].is(account.id.key_epoch.into()));
    assert!(columns[2].is_blob(&account.id.salt));
    assert!(columns[3].is(account.length.into()) && columns[4].is(account.live.into()));
    Ok(())
}

fn a_chunk(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    assert!(columns[0].is_blob(&chunk(row, 0)?.encode()));
    Ok(())
}

fn a_past_inode(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    let no = InodeNo(number(row, 0, "an inode number")?);
    match past_inode(row, 1, no)? {
        None => assert_eq!(columns[1], Column::Of(Value::Null)),
        Some(inode) => {
            assert!(inode.no == no && no.0 != 0 && inode.mode <= 0o7777);
            // Each number is one of a live row's.
            let numbers = inode_numbers(&inode);
            let bytes = past_inode_bytes(&inode);
            let again = postcard::from_bytes::<Inode>(&bytes);
            assert_eq!(again.map(|inode| inode_numbers(&inode)), Ok(numbers));
        }
    }
    Ok(())
}

fn a_kept_chunk(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    let kept = kept(row, 0)?;
    assert!(!kept.is_empty() && columns[0].is_blob(&kept.encode()));
    Ok(())
}

fn a_snapshot(row: &Row<'_>, columns: &[Column]) -> Result<()> {
    let read = snapshot(row)?;
    assert!(model::check_snapshot_name(&read.snapshot.name).is_ok());
    let name = read.snapshot.name.as_bytes();
    assert!(matches!(&columns[1], Column::Text(own) if own == name));
    let created = read.snapshot.created;
    for (at, number) in [
        (0, to_sql(read.no())),
        (2, created.secs),
        (3, created.nanos.into()),
        (4, read.snapshot.automatic.into()),
        (5, read.doomed.into()),
        (6, to_sql(read.next_inode.0)),
        (7, to_sql(read.next_cookie)),
    ] {
        assert!(columns[at].is(number), "column {at}: {:?}", columns[at]);
    }
    Ok(())
}

fn counters(bytes: &[u8]) {
    if let Some(counters) = Counters::decode(bytes) {
        assert_eq!(counters.encode(), *bytes);
        assert!(counters.next_inode > 1 && counters.next_cookie >= 16);
        // Each is written as a number of SQLite's, or counted on from.
        let numbers = [
            counters.generation,
            counters.next_inode,
            counters.next_cookie,
            counters.inodes,
        ];
        assert!(numbers.iter().all(|number| to_sql(*number) >= 0));
    }
}

fn version(bytes: &[u8]) {
    if let Ok(version) = decode_version(bytes) {
        assert_eq!(version.to_le_bytes(), *bytes);
        assert_eq!(encode_version(version), *bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use storage::Storage;
    use storage::testing::MemoryStorage;

    use super::*;
    use crate::contract::{file, map};
    use crate::corpus;
    use crate::{
        Catalog, Change, FileKind, Inode, InodeNo, OpenOptions, SegmentAccount, SegmentId,
        SegmentNo,
    };

    #[test]
    fn every_row_of_the_corpus_keeps_the_promises() {
        corpus::each("rows", rows);
    }

    fn written(column: ValueRef<'_>) -> Vec<u8> {
        let run = |kind: u8, bytes: &[u8]| {
            [&[kind][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat()
        };
        match column {
            ValueRef::Null => vec![0],
            ValueRef::Integer(number) => match u8::try_from(number) {
                Ok(small) => vec![1, small],
                Err(_) => [&[2][..], &number.to_le_bytes()].concat(),
            },
            ValueRef::Real(number) => [&[3][..], &number.to_le_bytes()].concat(),
            ValueRef::Text(bytes) => run(4, bytes),
            ValueRef::Blob(bytes) => run(5, bytes),
        }
    }

    /// Rows of a catalog, as they are in its tables.
    #[test]
    #[ignore = "rewrites the seeds of fuzz/corpus/rows"]
    fn make_seeds() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let key =
            seal::MasterKey::from_bytes(&[1; 32]).catalog_key(&seal::RoomId::from_bytes([9; 16]));
        let options = OpenOptions::default();
        let catalog = Catalog::create(&storage, "catalog.db", &key, &options).unwrap();
        let kinds = [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::BlockDevice,
        ];
        for (number, kind) in (2..).zip(kinds) {
            let target = match kind {
                FileKind::Symlink => b"../elsewhere".to_vec(),
                _ => Vec::new(),
            };
            let inode = Inode {
                kind,
                target,
                ..file(number)
            };
            let name = format!("name {number}");
            let entry = Change::put_entry(InodeNo::ROOT, name.as_bytes(), inode.no, kind);
            catalog.apply(&[Change::PutInode(&inode), entry]).unwrap();
        }
        let id = SegmentId {
            no: SegmentNo(7),
            key_epoch: 300,
            salt: [0x5a; 32],
        };
        let segment = SegmentAccount {
            id,
            length: 16384,
            live: 300,
        };
        let two_hundred = map(1, 200);
        let chunk = Change::put_chunk(InodeNo(2), 0, &two_hundred);
        catalog
            .apply(&[Change::PutSegment(segment), chunk])
            .unwrap();
        let late = (2..8).map(|_| catalog.new_inode()).last().unwrap();
        let then = catalog.new_snapshot("then", file(2).mtime, true);
        catalog.apply(&[Change::CreateSnapshot(&then)]).unwrap();
        let mut kept = crate::KeptChunk::default();
        kept.keep(0, 210, map(1, 200).extents());
        kept.keep(220, 1, &[]);
        catalog
            .apply(&[
                Change::PutInode(&file(2)),
                Change::PutInode(&file(4)),
                // Absent then.
                Change::PutInode(&file(late.0)),
                Change::keep_chunk(InodeNo(2), 0, then.no(), &kept),
            ])
            .unwrap();
        catalog.commit().unwrap();

        let state = catalog.lock();
        let mut seeds = Vec::new();
        for (of, name, sql) in [
            (0, "inode", "SELECT * FROM inodes ORDER BY no"),
            (1, "entry", "SELECT cookie, name, inode, kind FROM entries"),
            (2, "segment", super::super::super::schema::SEGMENTS),
            (3, "chunk", "SELECT extents FROM chunks"),
            (6, "past-inode", "SELECT no, inode FROM past_inodes"),
            (7, "kept-chunk", "SELECT kept FROM past_chunks"),
            (8, "snapshot", super::super::super::schema::past::SNAPSHOTS),
        ] {
            let mut statement = state.conn.prepare(sql).unwrap();
            let columns = statement.column_count();
            let mut found = statement.query(()).unwrap();
            while let Some(row) = found.next().unwrap() {
                let columns = (0..columns).flat_map(|at| written(row.get_ref(at).unwrap()));
                let seed: Vec<u8> = [of].into_iter().chain(columns).collect();
                seeds.push((format!("{name}-{}", seeds.len()), seed));
            }
        }
        let counters: Vec<u8> = state
            .conn
            .query_row(
                crate::sql::schema::META,
                [crate::sql::schema::META_COUNTERS],
                |row| row.get(0),
            )
            .unwrap();
        seeds.push(("counters".into(), [&[4][..], &counters].concat()));
        seeds.push(("version".into(), [&[5][..], &encode_version(1)].concat()));
        // Not inodes: what is out of bounds in one column, and what is no number at all.
        let good = inode_numbers(&file(9));
        for (name, at, number) in [
            ("no-number", 0, 0),
            ("unknown-kind", 1, 8),
            ("mode", 2, 0o10000),
            ("negative-size", 6, -1),
            ("nanoseconds", 10, 1_000_000_000),
            ("wide-nanoseconds", 12, 1 << 32),
            ("neither-no-nor-yes", 18, 2),
        ] {
            let mut numbers = good;
            numbers[at] = number;
            let numbers = numbers
                .iter()
                .flat_map(|number| written(ValueRef::Integer(*number)));
            let seed = [0]
                .into_iter()
                .chain(numbers)
                .chain(written(ValueRef::Blob(b"")));
            seeds.push((name.into(), seed.collect()));
        }
        let slash = [
            written(ValueRef::Integer(16)),
            written(ValueRef::Blob(b"a/b")),
        ]
        .concat();
        let entry = [vec![1], slash, vec![1, 2, 1, 1]].concat();
        seeds.push(("slash".into(), entry));
        corpus::replace_seeds(
            "rows",
            seeds.iter().map(|(name, seed)| (&**name, seed.clone())),
        );
    }
}
