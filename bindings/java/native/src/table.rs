//! The numbers that Java holds instead of pointers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};

use embed::{Error, File, Kind, Result, Session};
use parking_lot::RwLock;

/// Counts for both tables: a file's number is never a room's. 0 is nobody's.
static NEXT: AtomicI64 = AtomicI64::new(1);
/// Set when the virtual machine ends: what is opened later would not be closed.
static ENDING: AtomicBool = AtomicBool::new(false);

static ROOMS: LazyLock<Table<Session>> = LazyLock::new(|| Table::new("room"));
static FILES: LazyLock<Table<File>> = LazyLock::new(|| Table::new("file"));

/// Things by number.
pub(crate) struct Table<T> {
    what: &'static str,
    things: RwLock<HashMap<i64, Arc<T>>>,
}

impl<T> Table<T> {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            things: RwLock::default(),
        }
    }

    pub(crate) fn add(&self, thing: T) -> i64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.things.write().insert(number, Arc::new(thing));
        number
    }

    pub(crate) fn get(&self, number: i64) -> Result<Arc<T>> {
        self.things
            .read()
            .get(&number)
            .cloned()
            .ok_or(Error::Closed(self.what))
    }

    /// Calls in progress keep it until they end.
    pub(crate) fn remove(&self, number: i64) -> Option<Arc<T>> {
        self.things.write().remove(&number)
    }
}

pub(crate) fn room(number: i64) -> Result<Arc<Session>> {
    ROOMS.get(number)
}

pub(crate) fn add_room(session: Session) -> Result<i64> {
    let number = ROOMS.add(session);
    // Looked at after it is there: either the one who ends sees it, or it sees the end.
    if ENDING.load(Ordering::SeqCst) {
        close_room(number)?;
        return Err(Error::Closed("virtual machine"));
    }
    Ok(number)
}

/// Closes a room; one that is closed or never was: nothing to do. Within a transaction it is refused, and stays.
pub(crate) fn close_room(number: i64) -> Result<()> {
    let Ok(room) = ROOMS.get(number) else {
        return Ok(());
    };
    let done = room.close();
    if !room.is_open() {
        ROOMS.remove(number);
    }
    done
}

pub(crate) fn abandon_room(number: i64) -> Result<()> {
    ROOMS
        .remove(number)
        .map_or(Ok(()), |session| session.abandon())
}

/// Closes all rooms, and lets none be opened from now on.
pub(crate) fn end() -> Result<()> {
    ENDING.store(true, Ordering::SeqCst);
    let all: Vec<i64> = ROOMS.things.read().keys().copied().collect();
    let mut first = Ok(());
    for number in all {
        let done = match close_room(number) {
            // Nobody will complete the transaction.
            Err(e) if e.kind() == Kind::Busy => abandon_room(number),
            other => other,
        };
        first = first.and(done);
    }
    first
}

pub(crate) fn file(number: i64) -> Result<Arc<File>> {
    FILES.get(number)
}

pub(crate) fn add_file(file: File) -> i64 {
    FILES.add(file)
}

pub(crate) fn close_file(number: i64) {
    drop(FILES.remove(number));
}
