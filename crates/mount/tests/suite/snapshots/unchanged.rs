//! Nothing in a snapshot changes, whichever call tries.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::kit::{Kit, TREE, run, same};
use crate::common::is_root;

/// What failed with which error, from a list of lines of Python.
fn errors(at: &Path, lines: &str) -> String {
    const PROGRAM: &str = "
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def write(path, flags=0):
    fd = os.open(path, os.O_WRONLY | flags)
    try:
        os.write(fd, b'x')
    finally:
        os.close(fd)
def tmpfile(path):
    os.close(os.open(path, os.O_TMPFILE | os.O_RDWR))
def allocate(path, mode):
    fd = os.open(path, os.O_RDWR)
    try:
        if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(8192)):
            raise OSError(ctypes.get_errno(), path)
    finally:
        os.close(fd)
def direct(path):
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        os.pwritev(fd, [mmap.mmap(-1, 4096)], 0)
    finally:
        os.close(fd)
def swap(a, b):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), 2):
        raise OSError(ctypes.get_errno(), a)
for line in sys.stdin.read().splitlines():
    try:
        exec(line.strip())
        print(line.strip(), 'worked')
    except OSError as e:
        print(line.strip(), errno.errorcode[e.errno])
";
    let mut python = Command::new("python3");
    python.arg("-c").arg(PROGRAM).current_dir(at);
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

/// Each line fails with the error.
pub(crate) fn refused(at: &Path, error: &str, lines: &str) {
    for line in errors(at, lines.trim()).lines() {
        assert!(line.ends_with(&format!(" {error}")), "{line}");
    }
}

#[test]
fn nothing_in_a_snapshot_changes() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    let then = kit.copied("", "then");
    kit.take("one");
    kit.ok("echo live > live");
    let mut changes = String::new();
    for dir in ["one", "one/a"] {
        changes.push_str(&format!("os.mkdir('{dir}/n')\nos.symlink('x', '{dir}/n')\nos.mkfifo('{dir}/n')\ntmpfile('{dir}')\nos.open('{dir}/n', os.O_CREAT | os.O_WRONLY)\n"));
    }
    for file in ["one/t", "one/a/f", "../a/.snapshots/one/f"] {
        changes.push_str(&format!("write('{file}')\nwrite('{file}', os.O_APPEND)\nwrite('{file}', os.O_TRUNC)\nwrite('{file}', os.O_SYNC)\ndirect('{file}')\nos.truncate('{file}', 0)\nos.truncate('{file}', 1 << 20)\nallocate('{file}', 0)\nallocate('{file}', 3)\nos.unlink('{file}')\n"));
    }
    for any in ["one", "one/a", "one/a/f", ".", "one/a/b/link"] {
        let follow = "follow_symlinks=False";
        changes.push_str(&format!(
            "os.chown('{any}', 1, 1, {follow})\nos.utime('{any}', (1, 1), {follow})\n"
        ));
        if !any.ends_with("link") {
            changes.push_str(&format!(
                "os.chmod('{any}', 0o777)\nos.setxattr('{any}', 'user.x', b'1')\n"
            ));
        }
    }
    refused(
        &kit.path(".snapshots"),
        "EROFS",
        &(changes
            + "os.removexattr('one/a/f', 'user.note')
            os.mkdir('new')
            os.rmdir('one')
            os.rmdir('one/x')
            os.rename('one', 'two')
            os.rename('one/t', 'one/u')
            os.rename('one/t', 'one/a/f')
            os.rename('one/t', 'one/a/u')
            swap('one/t', 'one/a/f')
            os.rename('one/a/b', 'one/x/b')
            os.link('one/t', 'one/u')
            os.rmdir('../.snapshots')
            os.rename('../.snapshots', '../other')
            os.rename('../x', '../.snapshots')"),
    );
    refused(
        &kit.path(".snapshots"),
        "EXDEV",
        "os.rename('one/t', '../u')
        os.rename('one/a', '../u')
        os.rename('one', '../u')
        os.rename('../live', 'one/u')
        os.rename('../live', 'one/t')
        swap('../live', 'one/t')
        os.link('one/t', '../u')
        os.link('../live', 'one/u')",
    );
    same(&kit.path(".snapshots/one"), &then);
    assert_eq!(kit.ok("cat live"), "live\n");
    // What is not a change works.
    kit.ok("sync .snapshots/one/a/f && sync .snapshots/one && sync -f .snapshots/one && test -x .snapshots/one/a");
}

/// Where a file of the room has flags the kernel asks at each open.
#[test]
fn a_file_of_a_snapshot_is_not_opened_for_writing_where_the_kernel_asks() {
    let Some(kit) = Kit::new() else { return };
    if !is_root() {
        return;
    }
    kit.ok("echo text > f && echo > g && chattr +a f");
    kit.take("one");
    let kit = kit.again();
    let at = kit.path(".snapshots/one");
    refused(
        &at,
        "EROFS",
        "os.open('f', os.O_WRONLY | os.O_APPEND)\nos.open('g', os.O_RDWR)\nwrite('g')",
    );
    assert_eq!(
        kit.ok("cat .snapshots/one/f && echo more >> f && cat f"),
        "text\ntext\nmore\n"
    );
}

/// A mapping that is written cannot be refused: what is written to it does not stay.
#[test]
fn what_is_written_to_a_mapping_does_not_stay() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    kit.take("one");
    let program = "
import errno, mmap, os
fd = os.open('.snapshots/one/a/b/c/big', os.O_RDWR)
with mmap.mmap(fd, 0) as map:
    assert map[:4] != b'oops'
    map[:4] = b'oops'
    try:
        map.flush()
        print('worked')
    except OSError as e:
        print(errno.errorcode[e.errno])
os.close(fd)
";
    let path = kit.path(".snapshots/one/a/b/c/big");
    let before = fs::read(&path).unwrap();
    let said = run(Command::new("python3")
        .arg("-c")
        .arg(program)
        .current_dir(kit.path("")));
    assert_ne!(said, "worked\n");
    // The kernel's copy is dropped by another thread.
    for _ in 0..1000 {
        if fs::read(&path).unwrap() == before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the kernel shows what was not written");
}
