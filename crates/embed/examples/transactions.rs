//! What a language binding builds on: a room that threads share and that any of them may close.
//!
//! `cargo run -p strongroom-embed --example transactions -- DIRECTORY`: `DIRECTORY/room` must not exist.

use std::error::Error;
use std::path::PathBuf;
use std::thread;

use embed::{Key, Kind, OpenMode, OpenOptions, Secret, Session};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let dir = dir.join("room");
    // 32 random bytes that your program keeps somewhere safe. A passphrase would cost about a second at each opening.
    let key = || Key::Raw(Secret::from(vec![7; 32]));
    let session = Session::create(&dir, key(), None, OpenOptions::default())?;

    // A clone is the same open room. Files keep a position of their own, as in every language's library.
    thread::scope(|scope| {
        for name in ["/a", "/b"] {
            let session = session.clone();
            scope.spawn(move || session.open_file(name, OpenMode::WRITE)?.write(b"kept"));
        }
    });
    session.sync()?;

    // There is no rollback in an open room: closing it without completing takes the transaction back.
    session.begin()?;
    session.remove_file("/a")?;
    session.abandon()?;

    // Closed is an error of its own kind, never a crash, whichever thread closed it.
    let refused = session.stat("/b", true).unwrap_err();
    println!("closed: {}", refused.kind() == Kind::Closed);

    let session = Session::open(&dir, key(), OpenOptions::default())?;
    println!("/a is there: {}", session.exists("/a")?);
    session.close()?;
    Ok(())
}
