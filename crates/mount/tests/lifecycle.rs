//! How mounts begin and end.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Mount, is_root, ok};
use mount::{MountError, MountOptions};

#[test]
fn a_mount_that_is_in_use_is_not_unmounted() {
    let Some(mut mount) = Mount::new() else {
        return;
    };
    let file = fs::File::create(mount.path("f")).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    assert!(matches!(mount.handle.unmount(), Err(MountError::Busy(_))));
    file.write_all_at(b"more", 4).unwrap();
    drop(file);
    while matches!(mount.handle.unmount(), Err(MountError::Busy(_))) {
        std::thread::sleep(Duration::from_millis(5));
    }
    mount.join();
    assert_eq!(
        mount.room.as_ref().unwrap().read_file("/f").unwrap(),
        b"textmore"
    );
}

#[test]
fn unmounting_from_outside_ends_the_wait() {
    if !is_root() {
        return;
    }
    let Some(mut mount) = Mount::new() else {
        return;
    };
    ok(&mount, "echo text > f");
    assert!(
        Command::new("umount")
            .arg(mount.path(""))
            .status()
            .unwrap()
            .success()
    );
    mount.join();
    assert_eq!(
        mount.room.as_ref().unwrap().read_file("/f").unwrap(),
        b"text\n"
    );
}

#[test]
fn an_idle_mount_goes_but_not_while_something_is_open() {
    let options = MountOptions {
        // Long enough to create a file after mounting, however busy the machine.
        idle_timeout: Some(Duration::from_secs(2)),
        write_back_interval: Some(Duration::from_millis(50)),
        ..Default::default()
    };
    let Some(mut mount) = Mount::with(options) else {
        return;
    };
    let file = fs::File::create(mount.path("f")).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    file.write_all_at(b"still there", 0).unwrap();
    drop(file);
    let start = Instant::now();
    mount.join();
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "its own write-back is no activity"
    );
    assert_eq!(
        mount.room.as_ref().unwrap().read_file("/f").unwrap(),
        b"still there"
    );
}

#[test]
fn mounting_where_nothing_can_be_mounted_says_so() {
    let Some(mount) = Mount::new() else { return };
    let room = mount.room.clone().unwrap();
    let file = mount.plain().join("file");
    fs::write(&file, b"").unwrap();
    for at in [file, mount.plain().join("missing")] {
        let error = mount::mount(room.clone(), &at, &MountOptions::default()).unwrap_err();
        assert!(matches!(error, MountError::Mountpoint { .. }), "{error}");
        assert!(error.to_string().contains(at.to_str().unwrap()));
    }
}

#[test]
fn the_mount_table_shows_what_it_is() {
    let options = MountOptions {
        name: "my room, it is".to_owned(),
        ..Default::default()
    };
    let Some(mount) = Mount::with(options) else {
        return;
    };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table
        .lines()
        .find(|l| l.contains(mount.path("").to_str().unwrap()))
        .unwrap();
    assert!(
        line.contains("- fuse.strongroom my\\040room,\\040it\\040is "),
        "{line}"
    );
    assert!(line.contains("default_permissions"), "{line}");
}

#[test]
fn root_can_lift_the_limit_of_read_ahead() {
    if !is_root() {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    let done = mount::tune(&mount.path(""));
    if !done {
        eprintln!("skipped: the limit cannot be written here");
        return;
    }
    let dev = fs::metadata(mount.path(""))
        .map(|m| std::os::unix::fs::MetadataExt::dev(&m))
        .unwrap();
    let read_ahead = format!(
        "/sys/class/bdi/{}:{}/read_ahead_kb",
        rustix::fs::major(dev),
        rustix::fs::minor(dev)
    );
    assert_eq!(fs::read_to_string(read_ahead).unwrap(), "2048\n");
}

#[test]
fn many_threads_at_once_agree_with_each_other() {
    let Some(mount) = Mount::new() else { return };
    std::thread::scope(|scope| {
        for t in 0..8 {
            let dir = mount.path(&format!("t{t}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for i in 0..200 {
                    let path = dir.join(format!("f{i}"));
                    fs::write(&path, vec![t as u8; i * 37]).unwrap();
                    if i % 3 == 0 {
                        fs::rename(&path, dir.join(format!("g{i}"))).unwrap();
                    } else if i % 3 == 1 {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    for t in 0..8u8 {
        let dir = mount.path(&format!("t{t}"));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 133);
        for entry in fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let i: usize = entry.file_name().to_str().unwrap()[1..].parse().unwrap();
            assert_eq!(fs::read(entry.path()).unwrap(), vec![t; i * 37]);
        }
    }
}
