//! Mounts a room, uses it with ordinary file functions, and unmounts it.
//!
//! `cargo run -p strongroom-mount --example mount_room -- DIRECTORY`: the room is `DIRECTORY/room`, the mountpoint `DIRECTORY/mnt`.
//! Needs /dev/fuse, and `fusermount3` where the user is not root.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use mount::MountOptions;
use room::{NewCredential, NewRoom, Room, Secret};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let at = dir.join("mnt");
    fs::create_dir(&at)?;
    let key = NewCredential::RawKey(Secret::from(vec![7; 32]));
    let room = Arc::new(Room::create(
        &dir.join("room"),
        NewRoom::with_credential(key),
    )?);

    let mounted = mount::mount(room.clone(), &at, &MountOptions::default())?;
    // Larger requests from the kernel, where the system permits.
    mount::tune(mounted.mountpoint());
    // `wait` serves until it is unmounted; the handle unmounts from another thread. A daemon would call it at a signal.
    let handle = mounted.handle();
    let serving = thread::spawn(move || mounted.wait());

    // From here on every program can use it, with the permissions that the kernel checks.
    fs::write(at.join("hello.txt"), "hello")?;
    let used = fs::read_to_string(at.join("hello.txt"));

    // Refused while a file is open in it. Everything that was written has reached the room when this returns.
    handle.unmount()?;
    serving
        .join()
        .map_err(|_| "the serving thread panicked")??;
    println!("{}", used?);

    // The same file without the mount.
    println!("{} bytes in the room", room.read_file("/hello.txt")?.len());
    // Commits, and returns an error where that fails.
    Arc::into_inner(room)
        .ok_or("the room is still in use")?
        .close()?;
    Ok(())
}
