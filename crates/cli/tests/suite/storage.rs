//! What is below a mounted room fails: the disk is full, the directory is gone.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::setting::{Disk, on_a_disk};
use crate::common::{Sandbox, noise};

/// A mounted room on a disk of 32 MiB; `None` where there is none.
fn mounted_on_a_small_disk() -> Option<Sandbox> {
    on_a_disk(32).filter(Sandbox::mount)
}

#[test]
fn a_full_disk_is_reported_to_the_writer_keeps_acknowledged_data_and_gets_space_back() {
    let Some(s) = mounted_on_a_small_disk() else {
        return;
    };
    let kept = noise(1 << 20, 1);
    let mut file = std::fs::File::create(s.path("mnt/kept")).unwrap();
    file.write_all(&kept).unwrap();
    file.sync_all().unwrap();
    let mut filler = std::fs::File::create(s.path("mnt/filler")).unwrap();
    let piece = noise(1 << 20, 2);
    let error = (0..64)
        .find_map(|_| {
            filler
                .write_all(&piece)
                .and_then(|()| filler.sync_all())
                .err()
        })
        .expect("64 MiB do not fit into 32");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    drop((file, filler));
    assert_eq!(std::fs::read(s.path("mnt/kept")).unwrap(), kept);
    std::fs::remove_file(s.path("mnt/filler")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let again = loop {
        let again = std::fs::write(s.path("mnt/again"), &piece)
            .and_then(|()| std::fs::File::open(s.path("mnt/again"))?.sync_all());
        if again.is_ok() || Instant::now() > deadline {
            break again;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    again.expect("deleting gives the space back");
    s.umount();
    s.with_pass(["check", "room", "--read-data"]);
    assert_eq!(
        s.run(["cat", "room:/kept", "--passphrase-file", "pass"])
            .out,
        kept
    );
}

/// What failed: everything was durable, closing found no space for the times at which files were read, and `lock` ended with an
/// error.
#[test]
fn a_room_whose_changes_are_durable_is_locked_on_a_full_disk() {
    let Some(s) = mounted_on_a_small_disk() else {
        return;
    };
    for name in ["mnt/a", "mnt/b"] {
        std::fs::write(s.path(name), "hi").unwrap();
    }
    s.ok(["sync", "mnt"]);
    let mut ballast = std::fs::File::create(s.path("disk/ballast")).unwrap();
    while ballast.write(&[1; 4096]).is_ok_and(|n| n > 0) {}
    std::fs::rename(s.path("mnt/a"), s.path("mnt/c")).unwrap();
    std::fs::read(s.path("mnt/b")).unwrap();
    s.ok(["lock", "mnt"]);
    assert!(!s.is_mounted());
    ballast.set_len(0).unwrap();
    assert_eq!(s.with_pass(["ls", "room"]), "b\nc\n");
}

#[test]
fn a_room_whose_directory_is_removed_under_the_mount_gives_errors_and_does_not_hang() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("mnt/f"), noise(100_000, 3)).unwrap();
    s.ok(["sync", "room"]);
    std::fs::remove_dir_all(s.path("room")).unwrap();
    let begun = Instant::now();
    // Either outcome of each is right (what is open stays readable); not coming back is not.
    let _ = std::fs::read(s.path("mnt/f"));
    let _ = std::fs::write(s.path("mnt/g"), noise(10_000_000, 4));
    let _ = std::fs::File::open(s.path("mnt/f")).and_then(|f| f.sync_all());
    let ran = s.run(["umount", "mnt"]);
    assert!(!s.is_mounted(), "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// What failed: the room was named, or called one on a read-only file system that could be mounted with `-r`.
#[test]
fn a_backup_whose_target_fails_names_that() {
    let s = Sandbox::with_room();
    std::fs::write(s.path("f"), noise(6 << 20, 1)).unwrap();
    s.with_pass(["cp", "f", "room:/f"]);
    let (at, copy) = (s.path("small"), s.path("small/copy"));
    let Some(_small) = Disk::mounted(&at, 4) else {
        return;
    };
    let copy = copy.display();
    let full = format!("{copy}: no space left");
    let said = s.fails(9, ["backup", "room", "small/copy"]);
    assert!(said.contains(&full), "{said}");
    let remounted = |how: &str| {
        let mut mount = Command::new("mount");
        mount.args(["-o", how]).arg(&at).status().unwrap().success()
    };
    let read_only = format!("{copy}: read-only file system");
    assert!(remounted("remount,ro"));
    let said = s.fails(1, ["backup", "room", "small/copy"]);
    assert!(said.contains(&read_only), "{said}");
    if s.mount() {
        let said = s.run(["backup", "room", "small/copy"]);
        assert!(said.err.contains(&read_only), "{said:?}");
        assert!(remounted("remount,rw"));
        let said = s.run(["backup", "room", "small/copy"]);
        assert!(said.code == 9 && said.err.contains(&full), "{said:?}");
        s.umount();
    }
}
