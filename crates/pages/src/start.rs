//! SQLCipher is ready before anybody uses it.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};

/// How long another thread may take to start SQLCipher: it gets memory and randomness.
const START: Duration = Duration::from_secs(60);

/// Starts SQLCipher for all threads; to be called before a connection is opened.
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
    *started = true;
    Ok(())
}

fn has_started() -> io::Result<bool> {
    let connection = Connection::open_in_memory().map_err(io::Error::other)?;
    match connection.prepare("SELECT sqlcipher_export()") {
        Ok(_) => Ok(true),
        // SQLITE_ERROR: there is no such function yet. Anything else, as no memory, does not pass by waiting.
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::Unknown) => Ok(false),
        Err(e) => Err(io::Error::other(e)),
    }
}
