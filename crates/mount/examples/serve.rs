//! Makes a throw-away room, mounts it, and serves it until it is unmounted: for running test suites and measurements
//! against the mount alone. Usage: `serve ROOM MOUNTPOINT [io_uring] [snapshots]`; a room that exists is opened. The key is not a secret.
//!
//! `snapshots`: one is created each second, and the oldest are deleted so that 20 are left; the mount shows them.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use mount::{SnapshotDirectory, WithSnapshots};
use room::{
    Credential, FileSystem, NewCredential, NewRoom, NewSnapshot, OpenOptions, Room, Secret,
    Snapshots,
};

const KEPT: usize = 20;

/// Creates and deletes snapshots until the sender is gone. Returns how many, and the longest time that one took to create.
fn snapshots(room: &Room, end: &Receiver<()>) -> room::Result<(u64, Duration)> {
    let (mut created, mut longest) = (0, Duration::ZERO);
    while end.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let begun = Instant::now();
        room.create_snapshot(&format!("{created}"), NewSnapshot::default())?;
        longest = longest.max(begun.elapsed());
        created += 1;
        let all = room.snapshots()?;
        for oldest in &all[..all.len().saturating_sub(KEPT)] {
            room.delete_snapshot(&oldest.name)?;
        }
    }
    Ok((created, longest))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(dir), Some(at)) = (args.next(), args.next()) else {
        return Err("usage: serve ROOM MOUNTPOINT [io_uring] [snapshots]".into());
    };
    let words: Vec<_> = args.collect();
    let has = |word: &str| words.iter().any(|given| given == word);
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
    let transport = match has("io_uring") {
        true => mount::Transport::IoUring,
        false => mount::Transport::Device,
    };
    let root = rustix::process::geteuid().is_root();
    let options = mount::MountOptions {
        transport,
        // Suites change users, and make device nodes.
        allow_other: root,
        suid: root,
        dev: root,
        ..mount::MountOptions::default()
    };
    let (stop, end) = channel();
    let mut creating = None;
    let mut shown: Arc<dyn FileSystem> = room.clone();
    if has("snapshots") {
        shown = Arc::new(WithSnapshots::new(
            room.clone(),
            SnapshotDirectory::default(),
        ));
        let room = room.clone();
        creating = Some(std::thread::spawn(move || snapshots(&room, &end)));
    }
    let mounted = mount::mount(shown, at, &options)?;
    eprintln!("requests come by {:?}", mounted.transport());
    mount::tune(mounted.mountpoint());
    mounted.wait()?;
    drop(stop);
    if let Some(creating) = creating {
        let (created, longest) = creating.join().map_err(|_| "a panic")??;
        eprintln!("{created} snapshots, the slowest in {longest:?}");
    }
    if let Some(room) = Arc::into_inner(room) {
        room.close()?;
    }
    Ok(())
}
