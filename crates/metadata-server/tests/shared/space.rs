//! Space: disks that are removed, and disks that were full.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use metadata_server::server::ServerError;

use crate::common::{Shared, assert_same, noise, wait_for};

const FILE_LEN: usize = 3 << 20;

fn bytes(n: u64) -> Vec<u8> {
    noise(n, FILE_LEN)
}

/// Writes a file durably.
fn write(path: &Path, n: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(&bytes(n))?;
    file.sync_all()
}

/// The same; without space there is none.
fn put(path: &Path, n: u64) -> bool {
    match write(path, n) {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.kind(), std::io::ErrorKind::StorageFull, "{e}");
            // It may not even have got a name.
            let _ = std::fs::remove_file(path);
            false
        }
    }
}

#[test]
fn a_disk_is_emptied_while_clients_write_and_its_removal_outlives_the_server() {
    let mut shared = Shared::on_disks(640 << 20);
    let Some(mount) = shared.mount("a") else {
        return;
    };
    let path = |n: u64| mount.path(&n.to_string());
    for n in 0..40 {
        assert!(put(&path(n), n));
    }
    let left = |shared: &Shared| {
        let disks = shared.server().disks().unwrap();
        let disk = disks.into_iter().find(|d| d.name == "disk0")?;
        Some(disk.removal.expect("it is being emptied"))
    };
    let over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 40;
            while !over.load(Ordering::SeqCst) && n < 90 {
                // Also while the server goes and comes.
                write(&path(n), n).unwrap();
                n += 1;
            }
            n
        });
        let moved = shared.server().remove_disk("disk0").unwrap();
        assert!(moved.is_some_and(|bytes| bytes > 0), "it held something");
        shared.stop();
        shared.start();
        assert!(left(&shared).is_some(), "the next server knows of it");
        wait_for("the disk is empty", || left(&shared).is_none());
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    let none = shared.disks.remove(0);
    drop(none);
    for n in 0..written {
        assert_same(&std::fs::read(path(n)).unwrap(), &bytes(n));
    }
    assert!(put(&path(0), 0));
    // The last one has nowhere to go.
    let refused = shared.server().remove_disk("disk1").unwrap_err();
    assert!(
        matches!(refused, ServerError::NoPlaceElsewhere { available: 0, .. }),
        "{refused}"
    );
    assert!(put(&path(1), 1), "a refused removal changes nothing");
}
