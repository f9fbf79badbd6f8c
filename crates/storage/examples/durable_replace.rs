//! Replaces a file so that a crash leaves the old content or the new one, never a mixture.
//!
//! `cargo run -p strongroom-storage --example durable_replace -- DIRECTORY`: the directory must exist.

use std::error::Error;
use std::path::PathBuf;

use strongroom_storage::{HostStorage, OpenMode, Storage, read_limited, replace};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let storage = HostStorage::open(&dir)?;

    // Of two processes that write here, the second is refused. The kernel frees the lock when its holder ends, however it ends.
    // The note shows the other process who holds it.
    let _lock = storage.lock("lock", &format!("process {}", std::process::id()))?;

    // Writes a new file, syncs it, renames it over the old one, syncs the directory. Without the first sync the rename may reach the
    // disk before the data; without the second the name may be lost.
    replace(&storage, "settings", b"colour = blue\n")?;
    replace(&storage, "settings", b"colour = green\n")?;

    // Bounded: a file that somebody made huge must not fill the memory.
    let text = read_limited(&storage, "settings", 4096)?;
    print!("{}", String::from_utf8(text)?);

    // Data that is written in place is durable only after `sync`, and so is the name of a new file after `sync_dir`.
    // After a failed sync nothing is known about the file: a second one that succeeds proves nothing.
    let file = storage.open("journal", OpenMode::CreateNew)?;
    file.write_at(b"first\n", 0)?;
    file.sync()?;
    storage.sync_dir("")?;
    println!("journal: {} bytes", file.len()?);
    Ok(())
}
