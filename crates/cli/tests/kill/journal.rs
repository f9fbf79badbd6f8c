//! What a writer had begun and the answers that it got, outside the mount.
//!
//! 1. An operation's beginning is in the journal before the operation is begun, its end after it was answered.
//! 2. Times are of one clock for all processes: nanoseconds of CLOCK_MONOTONIC.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use rustix::io::Errno;

const RECORD: usize = 24;
const BEGAN: u64 = 0;
const ENDED: u64 = 1;
const STOPPED: u64 = 2;

/// Nanoseconds; the same clock in every process of this machine.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The writer's side.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    pub fn create(path: &Path) -> Self {
        Self(File::create(path).unwrap())
    }

    fn note(&mut self, what: u64, value: u64) {
        let mut record = [0; RECORD];
        for (field, value) in record.chunks_exact_mut(8).zip([what, now(), value]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        self.0.write_all(&record).unwrap();
    }

    pub fn began(&mut self) {
        self.note(BEGAN, 0);
    }

    pub fn ended(&mut self, answer: Result<(), Errno>) {
        self.note(
            ENDED,
            answer.map_or_else(|e| e.raw_os_error() as u64, |()| 0),
        );
    }

    /// The mount is gone.
    pub fn stopped(&mut self, why: Errno) {
        self.note(STOPPED, why.raw_os_error() as u64);
    }
}

/// One operation as the journal records it.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub began: u64,
    /// When it was answered, and how; `None` if it never was.
    pub ended: Option<(u64, Result<(), Errno>)>,
}

/// The reader's side.
#[derive(Debug, Default)]
pub struct Journaled {
    /// By the operation's number.
    pub entries: Vec<Entry>,
    /// When and why the writer stopped.
    pub stopped: Option<(u64, Errno)>,
}

impl Journaled {
    pub fn read(path: &Path) -> Self {
        let mut journal = Self::default();
        for record in std::fs::read(path).unwrap_or_default().chunks_exact(RECORD) {
            let field = |n: usize| u64::from_le_bytes(record[n * 8..n * 8 + 8].try_into().unwrap());
            let (time, errno) = (field(1), field(2) as i32);
            match field(0) {
                BEGAN => journal.entries.push(Entry {
                    began: time,
                    ended: None,
                }),
                ENDED => {
                    let answer = if errno == 0 {
                        Ok(())
                    } else {
                        Err(Errno::from_raw_os_error(errno))
                    };
                    journal.entries.last_mut().unwrap().ended = Some((time, answer));
                }
                _ => journal.stopped = Some((time, Errno::from_raw_os_error(errno))),
            }
        }
        journal
    }
}
