//! Encrypted files inside a program: creates a room, writes, closes, opens it again and reads.
//!
//! `cargo run -p strongroom-room --example first_room -- DIRECTORY`: `DIRECTORY/work.strongroom` must not exist. Afterwards the room is
//! an ordinary one: `strongroom cat DIRECTORY/work.strongroom:/letters/hello.txt` prints the file.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use room::{Credential, FileSystem as _, NewRoom, OpenOptions, Room, Secret};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let dir = dir.join("work.strongroom");
    // Ask for it in a real program. `Secret` is wiped from memory when it is dropped.
    let passphrase = || Secret::from(b"correct horse battery staple".to_vec());

    // About a second: the key derivation's cost is measured, so that guessing is expensive.
    let room = Room::create(&dir, NewRoom::with_passphrase(passphrase()))?;
    room.make_dir("/letters", false)?;
    room.write_file("/letters/hello.txt", b"Nobody else reads this.\n")?;
    // Durable when this returns. Without it a crash loses at most the last five seconds.
    room.sync()?;

    // Changes between `begin` and `complete` are all there after a crash, or none is.
    room.begin()?;
    room.write_file("/letters/index", b"hello.txt\n")?;
    let mut file = room.open_file("/letters/hello.txt")?;
    file.write_all(b"NOBODY")?;
    drop(file);
    room.complete()?;
    // Commits what is left. Dropping the room does too, but cannot return an error.
    room.close()?;

    let wrong = Credential::Passphrase(Secret::from(b"a guess".to_vec()));
    if let Err(refused) = Room::open(&dir, &wrong, OpenOptions::default()) {
        println!("{refused}");
    }
    let right = Credential::Passphrase(passphrase());
    let room = Room::open(&dir, &right, OpenOptions::default())?;
    let text = room.read_file("/letters/hello.txt")?;
    print!("{}", String::from_utf8(text)?);
    room.close()?;
    Ok(())
}
