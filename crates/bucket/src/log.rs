//! What keeps the order of commits: a log in which a number is taken once, by one writer.
//!
//! Every method is one try. Trying again, and for how long, is the caller's.
//!
//! 1. A record that [`CommitLog::create`] acknowledged is durable, and is there under its number until it is deleted.
//! 2. Of several writers of one number exactly one is acknowledged, however late or often a request arrives.

use std::fmt;
use std::io;

use async_trait::async_trait;
use bytes::Bytes;

use crate::record;

/// Bytes of a record by which it is known from all others: it begins with a header that has its id.
pub const HEAD: usize = record::HEADER;

/// What came of creating a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// This record is there: from this try, or from one before whose answer was lost.
    Ours,
    /// Another record has the number.
    Taken,
}

/// How one try failed.
#[derive(Debug)]
pub enum LogError {
    /// It may have been carried out. Worth trying again.
    Unanswered(String),
    /// No rights, or a login that fails. Tried again for a few seconds: credentials are renewed, and clocks put right.
    Forbidden(String),
    /// Not carried out, and never will be.
    Refused(io::ErrorKind, String),
}

/// An engine that orders the commits of rooms. `room` is a path without slashes around it; rooms do not see each other.
///
/// A record is at least one byte, and different from every other that anyone creates: it has a random id.
#[async_trait]
pub trait CommitLog: fmt::Debug + Send + Sync {
    /// Where it is, for people: without user and password. `None`: the commits are objects in the room's own store.
    fn address(&self) -> Option<String>;

    /// The most bytes of a record; more go into an object of the store, and the record names it.
    fn record_max(&self) -> u64 {
        u64::MAX
    }

    /// The most bytes of file data that are worth having in a record.
    fn inline_max(&self) -> u64 {
        1 << 20
    }

    /// Whether [`create`](Self::create) can be driven by the thread that waits for it, while others drive the other calls: connections are
    /// not shared between runtimes then.
    fn is_driven_by_waiter(&self) -> bool {
        false
    }

    /// Creates what the engine needs before its first room, where that is missing.
    async fn prepare(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// Creates a commit if its number is free. `number` counts from 1. `previous`: the record of the number before, of which the first
    /// [`HEAD`] bytes where it is longer; empty for the first number. A log other than an object store also refuses a number whose predecessor
    /// is not there, or is another one: then it has lost commits.
    async fn create(
        &self,
        room: &str,
        number: u64,
        record: Bytes,
        previous: &[u8],
    ) -> Result<Created, LogError>;

    /// The record; `None` where there is none.
    async fn get(&self, room: &str, number: u64) -> Result<Option<Bytes>, LogError>;

    /// All numbers after one, ascending, as of a moment after the call.
    async fn list(&self, room: &str, after: u64) -> Result<Vec<u64>, LogError>;

    /// Removes commits, which need not be there.
    async fn delete(&self, room: &str, numbers: &[u64]) -> Result<(), LogError>;
}

/// A log that has lost what was acknowledged: a standby that was promoted without it, or an older backup. `number`: of the commit that
/// cannot follow.
pub(crate) fn lost(number: u64) -> LogError {
    LogError::Refused(
        io::ErrorKind::InvalidData,
        format!(
            "it does not have commit {} as this writer knows it: the writer was overtaken long ago, or the log lost what it had acknowledged",
            number - 1
        ),
    )
}
