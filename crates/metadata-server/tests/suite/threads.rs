//! What becomes of work that finds no thread: at a limit of processes, or without memory for a stack.

use std::sync::Arc;

use crate::common::{Disk, World};
use crate::forbid::forbid;
use metadata_server::server::ServerError;
use storage::HostStorage;

/// Does something in a thread that can start no other one.
fn without_threads<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            forbid(&[libc::SYS_clone, libc::SYS_clone3]);
            work()
        });
        working.join()
    });
    done.expect("no panic")
}

/// They panicked, and of a disk that nobody looks after only the log spoke.
#[test]
fn without_threads_a_disk_is_not_looked_after_and_a_backup_is_written() {
    let world = World::new(2);
    let more = Disk::new("more");
    let disk = more.enrolled();
    let added = without_threads(|| world.server().add_disk(disk.clone()));
    let refused = added.unwrap_err();
    assert!(matches!(refused, ServerError::Io { .. }), "{refused}");
    assert!(refused.to_string().contains("add it again"), "{refused}");
    world.server().add_disk(disk).unwrap();

    let target = tempfile::tempdir().unwrap();
    let storage = Arc::new(HostStorage::open(target.path()).unwrap());
    without_threads(|| {
        let server = world.server();
        server.backup(storage, target.path(), &|_, _| true, &|| {})
    })
    .unwrap();
}
