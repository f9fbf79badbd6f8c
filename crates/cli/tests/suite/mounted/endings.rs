//! How a mount ends: by command, signal or kill, while it is in use or idle; and that the room is mounted again.

use super::*;
use crate::common;

/// What umount(8) does, by the system call: the program asks the serving process for its space first.
fn unmount(s: &Sandbox) {
    rustix::mount::unmount(s.path("mnt"), rustix::mount::UnmountFlags::empty()).unwrap();
}

/// umount(8) returns before the serving process has noticed: the next command met a process that answered "mounted", or
/// the room's lock, and failed with "in use by process N".
#[test]
fn a_room_is_mounted_again_while_its_process_has_not_noticed_the_end() {
    let s = Sandbox::with_room();
    if !is_root() || !s.mount() {
        return;
    }
    std::fs::write(s.path("mnt/f"), "x").unwrap();
    s.ok(["sync", "room"]);
    let pid = s.pid();
    assert!(send(pid, rustix::process::Signal::STOP));
    unmount(&s);
    let mut again = s
        .command(["mount", "room", "mnt", "--passphrase-file", "pass"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(send(pid, rustix::process::Signal::CONT));
    assert!(again.wait().unwrap().success());
    assert_ne!(s.pid(), pid);
    assert_eq!(std::fs::read(s.path("mnt/f")).unwrap(), b"x");
}

/// The same while it closes the room: its socket is gone, and its lock is not.
#[test]
fn a_room_is_mounted_again_while_its_process_closes_it() {
    let s = Sandbox::with_room();
    if !is_root() || !s.mount() {
        return;
    }
    std::fs::write(s.path("mnt/f"), common::noise(64 << 20, 3)).unwrap();
    let pid = s.pid();
    unmount(&s);
    while s.control().exists() {
        std::hint::spin_loop();
    }
    // A process that was faster than this has closed the room already.
    let stopped = send(pid, rustix::process::Signal::STOP);
    let mut again = s
        .command(["mount", "room", "mnt", "--passphrase-file", "pass"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    if stopped {
        send(pid, rustix::process::Signal::CONT);
    }
    assert!(again.wait().unwrap().success());
    assert_eq!(std::fs::metadata(s.path("mnt/f")).unwrap().len(), 64 << 20);
    // A command that reads finds the new mount, not the old mountpoint's directory.
    unmount(&s);
    assert_eq!(s.with_pass(["ls", "room"]), "f\n");
}

#[test]
fn a_busy_mount_is_not_unmounted_except_lazily() {
    let Some(s) = Sandbox::mounted() else { return };
    let mut file = std::fs::File::create(s.path("mnt/open")).unwrap();
    let busy = s.run(["umount", "mnt"]);
    assert_eq!(
        (busy.code, busy.err.contains("in use")),
        (13, true),
        "{}",
        busy.err
    );
    assert!(s.is_mounted());
    s.ok(["umount", "--lazy", "mnt"]);
    assert!(!s.is_mounted());
    // What failed: it was said to be mounted where it is not any more, and nothing about why.
    let why = format!("process {} still serves it", s.pid());
    for args in [&["mount", "room", "mnt"][..], &["umount", "room"]] {
        let err = s.fails(4, args);
        assert!(
            err.contains(&why) && err.contains("files were open"),
            "{args:?}: {err}"
        );
        // And each command waited ten seconds for that.
        assert!(!err.contains("waiting for process"), "{args:?}: {err}");
    }
    file.write_all(b"after").unwrap();
    drop(file);
    until("the room is closed", || !s.control().exists());
    until("the room opens again", || {
        s.run(["ls", "room", "--passphrase-file", "pass"]).code == 0
    });
    assert_eq!(s.with_pass(["cat", "room:/open"]), "after");
}

/// What umount(8) does with -l.
fn take_out_of_sight(s: &Sandbox) {
    rustix::mount::unmount(s.path("mnt"), rustix::mount::UnmountFlags::DETACH).unwrap();
}

/// Something else mounted at a room's mountpoint; it goes with this.
struct Other<'s>(&'s Sandbox);

impl<'s> Other<'s> {
    fn new(s: &'s Sandbox) -> Self {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", s.path("mnt"), "tmpfs", flags, None).unwrap();
        std::fs::write(s.path("mnt/other"), "").unwrap();
        Self(s)
    }

    fn is_there(&self) -> bool {
        self.0.path("mnt/other").exists()
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        if self.is_there() {
            unmount(self.0);
        }
    }
}

/// What failed: a signal to a process whose mount had been taken out of sight unmounted what was mounted there since.
#[test]
fn a_signal_unmounts_only_the_processes_own_mount() {
    let s = Sandbox::with_room();
    if !is_root() || !can_mount() {
        return;
    }
    let log = std::fs::File::create(s.path("log")).unwrap();
    let mut server = s.mount_in_foreground().stderr(log).spawn().unwrap();
    until("it is mounted", || s.is_mounted());
    let file = std::fs::File::create(s.path("mnt/open")).unwrap();
    take_out_of_sight(&s);
    let other = Other::new(&s);
    assert!(send(server.id(), rustix::process::Signal::TERM));
    until("the signal is handled", || {
        let log = std::fs::read_to_string(s.path("log")).unwrap();
        log.contains("no room is mounted here any more") || !other.is_there()
    });
    assert!(other.is_there());
    drop(file);
    assert!(server.wait().unwrap().success());
    assert!(other.is_there());
}

/// What failed: what was mounted over the room was unmounted, and the command reported success of the room.
#[test]
fn what_is_mounted_over_a_room_is_not_unmounted_for_it() {
    let Some(s) = Sandbox::mounted() else { return };
    if !is_root() {
        return;
    }
    let other = Other::new(&s);
    for command in ["umount", "lock"] {
        for args in [&[command, "mnt"][..], &[command, "room"]] {
            let err = s.run(args).err;
            assert!(err.contains("mounted over the room"), "{args:?}: {err}");
            assert!(other.is_there(), "{args:?}");
        }
    }
    drop(other);
    s.umount();
    assert!(!s.is_mounted());
}

/// What failed: after umount(8) with -l, each command waited ten seconds for the process, which ends when the files are closed.
#[test]
fn after_umount_of_the_system_one_command_waits_for_a_mount_in_use() {
    let Some(s) = Sandbox::mounted() else { return };
    if !is_root() {
        return;
    }
    let file = std::fs::File::create(s.path("mnt/open")).unwrap();
    take_out_of_sight(&s);
    // It may wait, and say so on a busy machine.
    s.fails(4, ["mount", "room", "mnt"]);
    for args in [&["mount", "room", "mnt"][..], &["umount", "room"]] {
        let err = s.fails(4, args);
        assert!(err.contains("files were open"), "{args:?}: {err}");
        assert!(!err.contains("waiting for process"), "{args:?}: {err}");
    }
    drop(file);
    until("the room is closed", || !s.control().exists());
}

#[test]
fn unmounting_takes_the_rooms_directory_too_and_says_when_nothing_is_mounted() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("mnt/f"), "x").unwrap();
    let pid = s.pid();
    s.with_pass(["umount", "room"]);
    // Nothing but its exit status may be left, waiting to be fetched.
    let process = std::fs::read_link(format!("/proc/{pid}/exe"));
    assert!(
        process.is_err(),
        "the process has ended when umount returns"
    );
    assert!(s.fails(11, ["umount", "room"]).contains("not mounted"));
    assert!(
        s.fails(11, ["umount", "mnt"])
            .contains("no room is mounted here")
    );
    assert_eq!(s.run(["umount", "nothing/here"]).code, 11);
}

#[test]
fn a_killed_mount_is_cleared_and_mounted_again() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("mnt/f"), "kept").unwrap();
    s.ok(["sync", "room"]);
    let pid = rustix::process::Pid::from_raw(s.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the process is gone", || {
        std::fs::read_dir(s.path("mnt")).is_err()
    });
    let err = s.fails(12, ["mount", "room", "mnt"]);
    assert!(
        err.contains("whose process has died") && err.contains("strongroom umount mnt"),
        "{err}"
    );
    s.ok(["umount", "mnt"]);
    // The socket is still there, and is nobody's.
    assert!(
        std::fs::symlink_metadata(s.control())
            .unwrap()
            .file_type()
            .is_socket()
    );
    assert_eq!(s.with_pass(["cat", "room:/f"]), "kept");
    assert!(!s.control().exists());
    // What failed: named by its room, it was not mounted.
    for command in ["umount", "lock"] {
        assert!(s.mount());
        s.kill_after(Duration::ZERO).join().unwrap();
        until("the process is gone", || {
            std::fs::read_dir(s.path("mnt")).is_err()
        });
        s.ok([command, "room"]);
        assert!(!s.is_mounted());
    }
    assert!(s.mount());
}

/// Found by the kill test: a process killed just after it had mounted was asking its own mount for a device number, held
/// `/dev/fuse` open while it waited for its own answer, and could not end: the room stayed locked, and every access to the
/// mount hung. About one start in thirty met that.
#[test]
fn a_process_killed_just_after_it_has_mounted_ends() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    for start in 0..40 {
        let mut server = s
            .command(["mount", "-f", "room", "mnt", "--passphrase-file", "pass"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while !s.is_mounted() {
            assert!(server.try_wait().unwrap().is_none(), "start {start}");
        }
        std::thread::sleep(Duration::from_micros(start * 50));
        server.kill().unwrap();
        let began = std::time::Instant::now();
        while server.try_wait().unwrap().is_none() {
            if began.elapsed() > Duration::from_secs(30) {
                // Ends what waits for the mount, and so the process.
                let _ = std::process::Command::new("umount")
                    .arg("-f")
                    .arg(s.path("mnt"))
                    .status();
                panic!("start {start}: the killed process does not end");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        s.clear_after_kill();
    }
}

/// Found by the kill test: asked just after the serving process had died, `sync` opened the room itself, found nothing to
/// do, and said that all was durable.
#[test]
fn sync_does_not_answer_for_a_mount_that_died() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("mnt/f"), "never synced").unwrap();
    let pid = rustix::process::Pid::from_raw(s.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the process is gone", || {
        std::fs::read_dir(s.path("mnt")).is_err()
    });
    let err = s.fails(11, ["sync", "room"]);
    assert!(err.contains("died") && err.contains("is lost"), "{err}");
    // Said once; from then on the room is what it is.
    s.with_pass(["sync", "room"]);
}

#[test]
fn a_signal_unmounts_and_commits_and_a_lost_terminal_does_not() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("mnt/f"), "written").unwrap();
    let pid = rustix::process::Pid::from_raw(s.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(s.is_mounted());
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("it is unmounted", || !s.is_mounted());
    until("the room is closed", || {
        s.run(["cat", "room:/f", "--passphrase-file", "pass"]).code == 0
    });
    assert_eq!(s.with_pass(["cat", "room:/f"]), "written");
}

#[test]
fn a_mount_in_the_foreground_ends_with_a_signal_and_exit_code_0() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    let mut child = s
        .mount_in_foreground()
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it is mounted", || s.is_mounted());
    std::fs::write(s.path("mnt/f"), "x").unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!s.is_mounted());
    assert_eq!(s.with_pass(["cat", "room:/f"]), "x");
}

#[test]
fn an_idle_mount_goes_away_by_itself() {
    let s = Sandbox::with_room();
    if !can_mount() {
        return;
    }
    s.with_pass(["mount", "room", "mnt", "--idle-timeout", "1s"]);
    until("it is unmounted", || !s.is_mounted());
    until("the room is closed", || {
        s.run(["ls", "room", "--passphrase-file", "pass"]).code == 0
    });
}

/// A limit on the size of files, as of the shell that mounted (`ulimit -f`), ended the process at the first write beyond it, by SIGXFSZ.
#[test]
fn a_limit_on_the_size_of_files_ends_no_mount() {
    let s = Sandbox::with_room();
    if !is_root() || !s.mount() {
        return;
    }
    std::fs::write(s.path("mnt/small"), "x").unwrap();
    let limit = rustix::process::Rlimit {
        current: Some(512 << 10),
        maximum: None,
    };
    let pid = rustix::process::Pid::from_raw(s.pid() as i32);
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    let large = std::fs::File::create(s.path("mnt/large")).unwrap();
    let written = std::io::Write::write_all(&mut &large, &common::noise(4 << 20, 5));
    assert!(written.and_then(|()| large.sync_all()).is_err());
    drop(large);
    assert_eq!(std::fs::read(s.path("mnt/small")).unwrap(), b"x");
    assert!(s.is_mounted());
}
