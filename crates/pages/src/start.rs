//! SQLCipher is ready before anybody uses it.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, Error, ErrorCode};

use crate::private_heap;

/// How long another thread may take to start SQLCipher: it gets memory and randomness.
const START: Duration = Duration::from_secs(60);

/// Starts SQLCipher for all threads, and leaves its keys out of core dumps; to be called before a connection is opened.
///
/// SQLite calls itself started before SQLCipher has started (`SQLITE_EXTRA_INIT`), so the first connection of a second thread
/// can come before the ciphers are there, or lack SQLCipher's functions for as long as it lives. The function looked for here
/// is what SQLCipher puts in place last.
///
/// # Errors
/// No memory, or SQLCipher does not start.
pub fn start() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock();
    if *started {
        return Ok(());
    }
    let until = Instant::now() + START;
    while !has_started()? {
        if Instant::now() > until {
            return Err(io::Error::other("SQLCipher does not start"));
        }
        sleep(Duration::from_millis(1));
    }
    private_heap::leave_out_of_dumps();
    *started = true;
    Ok(())
}

fn has_started() -> io::Result<bool> {
    let connection = Connection::open_in_memory().map_err(io::Error::other)?;
    match connection.prepare("SELECT sqlcipher_export()") {
        Ok(_) => Ok(true),
        // That does not pass by waiting.
        Err(Error::SqlInputError { error, .. } | Error::SqliteFailure(error, _))
            if error.code == ErrorCode::OutOfMemory =>
        {
            Err(io::Error::other(error))
        }
        // There is no such function yet.
        Err(_) => Ok(false),
    }
}
