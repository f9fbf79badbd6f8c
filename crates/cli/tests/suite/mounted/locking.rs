//! `strongroom lock`: mounts are cut off.

use super::*;

/// A program that has a file of the mount open, and appends to it when it is sent a line.
fn writer(s: &Sandbox) -> std::process::Child {
    const WRITER: &str = "\
import os
file = os.open('mnt/open', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(file, b'before\\n')
print('ready', flush=True)
input()
os.write(file, b'after\\n')
os.fsync(file)
";
    let mut command = Command::new("python3");
    if let Some(user) = s.user() {
        command.uid(user).gid(user);
    }
    command
        .args(["-c", WRITER])
        .current_dir(s.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Locks a room with an open file: without `--force` in vain, then by force.
fn lock_in_use(s: &Sandbox, options: &[&str]) {
    if !s.mount() {
        return;
    }
    let pid = s.pid();
    let mut writer = writer(s);
    let output = writer.stdout.as_mut().unwrap();
    output.read_exact(&mut [0; 6]).unwrap();
    let lock = |more: &[&str]| s.run([&["lock"], options, more].concat());
    let refused = lock(&[]);
    assert_eq!(refused.code, 13, "{}", refused.err);
    let line = format!("python3 (process {}): open ", writer.id());
    assert!(refused.err.contains(&line), "{}", refused.err);
    assert!(refused.err.contains("mnt/open"), "{}", refused.err);
    let refused = lock(&["--json"]);
    let said: Value = serde_json::from_str(&refused.text()).unwrap();
    assert_eq!(said["by"][0]["pid"], writer.id(), "{said}");
    assert!(s.is_mounted());
    let locked = lock(&["--force"]);
    assert_eq!(locked.code, 0, "{}", locked.err);
    assert!(locked.err.contains(&line), "{}", locked.err);
    assert!(!s.is_mounted());
    assert!(
        std::fs::read_link(format!("/proc/{pid}/exe")).is_err(),
        "the process that had the keys has ended"
    );
    writer.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let ended = writer.wait().unwrap();
    assert!(!ended.success(), "a program that was cut off gets an error");
    assert_eq!(s.with_pass(["cat", "room:/open"]), "before\n");
}

#[test]
fn locking_names_who_uses_the_room_and_by_force_cuts_them_off_with_nothing_lost() {
    let s = Sandbox::with_room();
    lock_in_use(&s, &["room"]);
    assert_eq!(s.run(["lock", "room"]).code, 11, "nothing is mounted");
}

/// Through `fusermount3`, by a user whom no other test is: `--all` locks whatever the user has mounted.
#[test]
fn an_ordinary_user_locks_all_rooms() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut s = Sandbox::of_user(Some(2));
    s.use_own_copy();
    s.ok(["lock", "--all"]);
    s.create();
    lock_in_use(&s, &["--all"]);
}

#[test]
fn a_room_that_nobody_uses_is_locked() {
    let Some(s) = Sandbox::mounted() else { return };
    std::fs::write(s.path("mnt/f"), "x").unwrap();
    let pid = s.pid();
    s.ok(["lock", "room"]);
    assert!(!s.is_mounted());
    assert!(std::fs::read_link(format!("/proc/{pid}/exe")).is_err());
    assert_eq!(s.with_pass(["cat", "room:/f"]), "x");
}
