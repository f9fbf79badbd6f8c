//! Makes a throw-away room, mounts it, and serves it until it is unmounted: for running test suites and measurements
//! against the mount alone. Usage: `serve ROOM MOUNTPOINT [io_uring]`; a room that exists is opened. The key is not a secret.

use std::path::Path;
use std::sync::Arc;

use room::{Credential, NewCredential, NewRoom, OpenOptions, Room, Secret};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(dir), Some(at)) = (args.next(), args.next()) else {
        return Err("usage: serve ROOM MOUNTPOINT [io_uring]".into());
    };
    let (dir, at) = (Path::new(&dir), Path::new(&at));
    let key = || Secret::from(vec![7; 32]);
    let open = OpenOptions {
        state_dir: Some(dir.with_extension("state")),
        ..Default::default()
    };
    let room = if dir.join("header.json").exists() {
        Room::open(dir, &Credential::RawKey(key()), open)?
    } else {
        let new = NewRoom {
            open,
            ..NewRoom::with_credential(NewCredential::RawKey(key()))
        };
        Room::create(dir, new)?
    };
    let room = Arc::new(room);
    let transport = match args.next() {
        Some(word) if word == "io_uring" => mount::Transport::IoUring,
        _ => mount::Transport::Device,
    };
    let options = mount::MountOptions {
        transport,
        ..mount::MountOptions::default()
    };
    let mounted = mount::mount(room.clone(), at, &options)?;
    eprintln!("requests come by {:?}", mounted.transport());
    mount::tune(mounted.mountpoint());
    mounted.wait()?;
    if let Some(room) = Arc::into_inner(room) {
        room.close()?;
    }
    Ok(())
}
