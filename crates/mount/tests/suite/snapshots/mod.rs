//! Snapshots in the directory `.snapshots` of a real mount.
mod kit;
mod unchanged;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;

use crate::common::{as_nobody, for_all_users, is_root, ok_as_nobody, sh};
use kit::{Kit, TREE, run, same, sh_at};
use mount::{MountOptions, SnapshotDirectory, Transport};
use room::FileSystem as _;
use unchanged::refused;

#[test]
fn every_directory_shows_itself_as_it_was() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    let then = kit.copied("", "then");
    kit.take("one");
    kit.ok(
        "echo other > a/f && rm a/b/g && mv a/b x/moved && echo more >> x/moved/c/big && mkdir a/new && chmod 700 a \
        && setfattr -x user.note a/f && rm t && ln -sf elsewhere x/moved/link && sync \
        && find . -type f -exec touch -d '2003-04-05 06:07:08' {} +",
    );
    let later = kit.copied("", "later");
    kit.take("two");
    kit.ok("rm -r a x && mkdir a && echo third > a/f");
    same(&kit.path(".snapshots/one"), &then);
    same(&kit.path(".snapshots/two"), &later);
    assert_eq!(kit.ok("ls .snapshots"), "one\ntwo\n");
    let shown = |dir: &str| kit.ok(&format!("ls {dir}/.snapshots"));
    assert_eq!(shown("a"), "", "this directory is new");
    assert_eq!(
        kit.ok("getfattr --only-values -n user.note .snapshots/one/a/f"),
        "kept"
    );
    // The same through the directories themselves, where they still are.
    kit.ok("mkdir -p n && sync && touch -d '2004-05-06 07:08:09' a/f");
    kit.take("three");
    let now = kit.copied("", "now");
    kit.ok("mv a renamed && rm renamed/f && mkdir renamed/n");
    assert_eq!(shown("renamed"), "three\n");
    same(&kit.path("renamed/.snapshots/three"), &now.join("a"));
    assert_eq!(shown("renamed/n"), "", "this directory is new");
    assert_eq!(kit.ok("cat renamed/.snapshots/three/f"), "third\n");
}

#[test]
fn a_directory_below_keeps_its_past_wherever_it_was() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    let then = kit.copied("", "then");
    kit.take("one");
    kit.ok("mv a/b x/moved && rm -r x/moved/c");
    same(&kit.path("x/moved/.snapshots/one"), &then.join("a/b"));
    same(&kit.path("a/.snapshots/one"), &then.join("a"));
    same(&kit.path(".snapshots/one/a/b"), &then.join("a/b"));
    assert!(!kit.path("x/moved/.snapshots/one/.snapshots").exists());
}

#[test]
fn the_directory_is_hidden_unless_it_is_to_be_shown() {
    let Some(kit) = Kit::new() else { return };
    kit.ok("mkdir a");
    assert!(!kit.path(".snapshots").exists(), "there is none yet");
    kit.take("one");
    assert!(kit.path(".snapshots/one/a").is_dir());
    assert!(kit.path("a/.snapshots/one").is_dir());
    assert_eq!(kit.ok("ls -A && find . -mindepth 1"), "a\n./a\n");
    kit.ok("rmdir a");
    kit.delete("one");
    assert!(!kit.path(".snapshots").exists(), "there is none any more");

    let directory = SnapshotDirectory {
        name: b"past".to_vec(),
        is_listed: true,
    };
    let Some(kit) = Kit::with(for_all_users(), directory) else {
        return;
    };
    // More than one answer to a request for names holds.
    kit.ok("mkdir a && for i in $(seq 500); do echo > f$i; done");
    assert_eq!(kit.ok("ls -A | wc -l"), "501\n");
    kit.take("one");
    assert_eq!(kit.ok("ls -A | wc -l"), "502\n");
    assert_eq!(kit.ok("ls -A | sort -u | wc -l"), "502\n");
    assert_eq!(
        kit.ok("ls -A a && ls past && ls a/past/one && ls -d past"),
        "one\npast\n"
    );
    assert!(!kit.path(".snapshots").exists());
    // Every file once, and once more in the snapshot.
    assert_eq!(kit.ok("find . -name 'f*' | wc -l"), "1000\n");
}

#[test]
fn a_file_of_that_name_is_not_covered() {
    let Some(kit) = Kit::new() else { return };
    kit.ok("mkdir -p a/.snapshots b && echo mine > a/.snapshots/one && sync");
    kit.take("one");
    assert_eq!(
        kit.ok("cat a/.snapshots/one && ls -A a"),
        "mine\n.snapshots\n"
    );
    kit.ok("echo changed > a/.snapshots/one && mv a/.snapshots/one a/.snapshots/two && mv a/.snapshots a/s && mv a/s b/s");
    assert_eq!(kit.ok("cat a/.snapshots/one/.snapshots/one"), "mine\n");
    // Where snapshots are shown already, the name is taken.
    assert!(!sh(&kit.mount, "mv -T b/s a/.snapshots").status.success());
    assert!(!sh(&kit.mount, "mkdir b/.snapshots").status.success());
    kit.delete("one");
    kit.ok("mv -T b/s a/.snapshots && cat a/.snapshots/two && rm a/.snapshots/two && rmdir a/.snapshots");
}

#[test]
fn extended_attributes_are_copied_with_capabilities() {
    let Some(kit) = Kit::new() else { return };
    if !is_root() {
        return;
    }
    // cap_net_raw+ep
    const VALUE: &str = "0x0100000200200000000000000000000000000000";
    kit.ok(&format!(
        "echo > f && setfattr -n user.a -v b f && setfattr -n security.capability -v {VALUE} f && setfacl -m u:7:r f"
    ));
    kit.take("one");
    kit.ok("rm f && cp -a .snapshots/one/f .");
    let shown = |name: &str| kit.ok(&format!("getfattr -d -m - -e hex {name} | tail -n +2"));
    assert_eq!(shown("f"), shown(".snapshots/one/f"));
    assert!(shown("f").contains(VALUE));
}

/// As an NFS server uses it.
#[test]
fn a_file_handle_outlives_what_the_kernel_knows() {
    let directory = SnapshotDirectory {
        is_listed: true,
        ..SnapshotDirectory::default()
    };
    let (true, Some(kit)) = (is_root(), Kit::with(for_all_users(), directory)) else {
        return;
    };
    kit.ok(TREE);
    kit.take("one");
    let program = "
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_uint), ('type', ctypes.c_int), ('data', ctypes.c_char * 128)]
def handle(path):
    h, mount = Handle(bytes=128), ctypes.c_int()
    assert libc.name_to_handle_at(-100, path.encode(), ctypes.byref(h), ctypes.byref(mount), 0) == 0
    return h
root = os.open('.', os.O_RDONLY)
def opened(h):
    fd = libc.open_by_handle_at(root, ctypes.byref(h), os.O_RDONLY)
    return fd if fd >= 0 else errno.errorcode[ctypes.get_errno()]
file, dir, top = handle('.snapshots/one/a/b/g'), handle('.snapshots/one/a/b'), handle('.snapshots')
open('/proc/sys/vm/drop_caches', 'w').write('2')
assert os.read(opened(file), 100) == b'two\\n'
fd = opened(dir)
assert sorted(os.listdir(fd)) == ['c', 'g', 'hard', 'link'], fd
assert os.listdir(opened(top)) == ['one']
print('deleted', flush=True)
sys.stdin.readline()
open('/proc/sys/vm/drop_caches', 'w').write('2')
assert opened(handle('.')) >= 0
os.close(fd)
open('/proc/sys/vm/drop_caches', 'w').write('2')
assert opened(dir) == 'ESTALE', opened(dir)
";
    let mut python = Command::new("python3");
    python.arg("-c").arg(program).current_dir(kit.path(""));
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    kit.delete("one");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// The end of the process that serves a mount, to programs in it.
#[test]
fn programs_in_a_snapshot_end_with_the_connection() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    kit.take("one");
    if !is_root() {
        return;
    }
    let begun = Barrier::new(4);
    std::thread::scope(|scope| {
        for dir in [".snapshots/one", "a/.snapshots/one", ".snapshots/one/a/b"] {
            let (kit, begun) = (&kit, &begun);
            scope.spawn(move || {
                let find = format!("find {dir} -type f -exec cat {{}} + > /dev/null");
                kit.ok(&find);
                begun.wait();
                while sh_at(&kit.path(""), &find) {}
            });
        }
        begun.wait();
        // Cuts the connection whether the mount is in use or not.
        let _ = Command::new("umount").arg("-f").arg(kit.path("")).output();
    });
    let kit = kit.again();
    assert_eq!(kit.ok("cat .snapshots/one/a/f"), "one\n");
}

#[test]
fn a_file_has_one_number_in_a_snapshot_and_no_other_file_has_it() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    kit.take("one");
    kit.take("two");
    let meta = |name: &str| fs::symlink_metadata(kit.path(name)).unwrap();
    let live = meta("a/f");
    let file = meta(".snapshots/one/a/f");
    assert_eq!(file.dev(), live.dev());
    assert_eq!(meta(".snapshots").dev(), live.dev());
    for hard in [
        ".snapshots/one/a/b/hard",
        "a/.snapshots/one/f",
        "a/b/.snapshots/one/hard",
    ] {
        assert_eq!(meta(hard).ino(), file.ino(), "{hard}");
    }
    let all = kit.ok("find . .snapshots a/.snapshots a/b/.snapshots -printf '%i %y %p\\n'");
    let numbers = |all: &str| -> BTreeSet<String> {
        let lines = all.lines().map(|line| line.split(' ').next().unwrap());
        lines.map(str::to_owned).collect()
    };
    // 10 live files. In each snapshot 9 and a directory for the top; through `a` the directories a, b, c again, through `b` b and c.
    // And a directory of snapshots in three.
    let live = kit.ok("find . -printf '%i\\n'");
    let count = numbers(&live).len();
    assert_eq!(
        numbers(&all).len(),
        count + 2 * (count + 3 + 2) + 3,
        "{all}"
    );
    for line in all.lines() {
        let (number, name) = (
            line.split(' ').next().unwrap(),
            line.splitn(3, ' ').nth(2).unwrap(),
        );
        assert_eq!(meta(name).ino().to_string(), number, "{name}");
    }
    let kit = kit.again();
    let again = kit.ok("find . .snapshots a/.snapshots a/b/.snapshots -printf '%i %y %p\\n'");
    assert_eq!(again, all, "the same after another mount");
    assert_eq!(
        kit.ok("du -s --apparent-size -B1 .snapshots/one/a | cut -f1"),
        kit.ok("du -s --apparent-size -B1 a/.snapshots/one | cut -f1")
    );
}

#[test]
fn a_directory_that_is_reached_by_two_ways_stays_where_it_is() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    kit.take("one");
    let said = kit.ok(
        "top=$(pwd -P) && cd a/.snapshots/one/b/c && ls $top/.snapshots/one/a/b/c $top/a/b/.snapshots/one/c > /dev/null \
        && find $top/.snapshots/one | wc -l && pwd -P | sed s,$top,, && cat ../g && ls ../../../.. | head -1 \
        && cd .. && cd .. && cd .. && pwd -P | sed s,$top,, && cd .. && /bin/pwd | sed s,$top,,",
    );
    let lines: Vec<_> = said.lines().skip(1).collect();
    assert_eq!(
        lines,
        ["/a/.snapshots/one/b/c", "two", "b", "/a/.snapshots", "/a"]
    );
    // Many at once, by all ways.
    std::thread::scope(|scope| {
        for dir in [
            ".snapshots/one/a",
            "a/.snapshots/one",
            "a/.snapshots/one/b",
            "a/b/.snapshots/one",
            ".snapshots/one/a/b",
        ] {
            let kit = &kit;
            scope.spawn(move || {
                for _ in 0..20 {
                    kit.ok(&format!("ls -lR {dir} > /dev/null && find {dir} -type f -exec cat {{}} + > /dev/null"));
                }
            });
        }
    });
}

#[test]
fn files_are_copied_back_without_a_command() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    let then = kit.copied("", "then");
    kit.take("monday");
    kit.ok("rm -r a t");
    kit.ok("cp -a .snapshots/monday/t . && cp -a .snapshots/monday/a .");
    same(&kit.path("a"), &then.join("a"));
    kit.ok("mkdir into && tar -C .snapshots/monday -cf - a | tar -C into -xf - && rsync -a .snapshots/monday/a/b into/");
    assert!(kit.path("into/b/c/big").exists());
    // Holes stay holes.
    let blocks = |name: &str| fs::metadata(kit.path(name)).unwrap().blocks();
    assert_eq!(blocks(".snapshots/monday/a/sparse"), 8);
    assert!(blocks("a/sparse") <= 8);
    // By the calls that share blocks elsewhere, and without the kernel's cache.
    let program = "
import mmap, os
s, d = os.open('.snapshots/monday/a/b/c/big', os.O_RDONLY), os.open('range', os.O_CREAT | os.O_RDWR)
left = 300000
while left:
    done = os.copy_file_range(s, d, left)
    assert done > 0
    left -= done
assert os.pread(d, 300000, 0) == os.pread(s, 300000, 0)
assert os.lseek(os.open('.snapshots/monday/a/sparse', os.O_RDONLY), 0, os.SEEK_DATA) == 5000000 // 4096 * 4096
direct = os.open('.snapshots/monday/a/b/c/big', os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
assert os.preadv(direct, [buffer], 0) == 300000
assert buffer[:300000] == os.pread(s, 300000, 0)
with mmap.mmap(s, 0, prot=mmap.PROT_READ) as map:
    assert map[:] == buffer[:300000]
";
    run(Command::new("python3")
        .arg("-c")
        .arg(program)
        .current_dir(kit.path("")));
    same(&kit.path(".snapshots/monday"), &then);
}

/// `cp` takes no space for what is in a snapshot.
#[test]
fn a_copy_out_of_a_snapshot_shares_its_blocks() {
    let Some(kit) = Kit::new() else { return };
    kit.ok("head -c 20000001 /dev/urandom > f && echo short > s && truncate -s 5M hole && echo end >> hole && sync");
    let then = kit.copied("", "then");
    kit.take("one");
    kit.ok("rm s hole && head -c 3000000 /dev/urandom | dd of=f bs=1M seek=5 conv=notrunc status=none && sync");
    let stored = || kit.room().space().unwrap().live;
    let before = stored();
    kit.ok("cp .snapshots/one/f copy && cp .snapshots/one/s . && cp .snapshots/one/hole . && sync");
    let grown = stored() - before;
    assert!(grown < 1 << 20, "{grown} bytes more");
    let equal = |kit: &Kit| {
        for (name, copy) in [("f", "copy"), ("s", "s"), ("hole", "hole")] {
            assert!(
                fs::read(then.join(name)).unwrap() == fs::read(kit.path(copy)).unwrap(),
                "{name}"
            );
        }
    };
    equal(&kit);
    // Onto what is there already, at other places, in pieces: whatever is shared, the bytes are right.
    let program = "
import os
s, want = os.open('.snapshots/one/f', os.O_RDONLY), open('.snapshots/one/f', 'rb').read()
def copy(path, at, to, length, before=b''):
    with open(path, 'wb') as f: f.write(before)
    d, have = os.open(path, os.O_RDWR), bytearray(before)
    left = length
    while left:
        done = os.copy_file_range(s, d, left, at, to)
        if done == 0: break
        if len(have) < to + done: have.extend(bytes(to + done - len(have)))
        have[to:to + done] = want[at:at + done]
        at, to, left = at + done, to + done, left - done
    os.close(d)
    assert open(path, 'rb').read() == bytes(have), (path, at, to, length)
M = 1 << 20
for n, (at, to, length, before) in enumerate([
    (0, 0, 3 * M, 0), (0, 0, 3 * M + 5, 0), (M, M, 2 * M, 100), (M, M, 2 * M, 3 * M), (5, 5, M, 0), (0, M, 2 * M, M),
    (19 * M, 19 * M, 2 * M, 0), (0, 0, 100, 0), (7 * M, 7 * M, 20 * M, 7 * M), (0, 0, 30 * M, 25 * M)]):
    copy(f'n{n}', at, to, length, os.urandom(before))
";
    run(Command::new("python3")
        .arg("-c")
        .arg(program)
        .current_dir(kit.path("")));
    equal(&kit);
    let kit = kit.again();
    equal(&kit);
    kit.delete("one");
    kit.ok("rm f n*");
    let kit = kit.again();
    equal(&kit);
    let check = kit.room().check(true, false, &|_, _| true).unwrap();
    assert_eq!((check.findings, check.lost), (vec![], vec![]));
}

#[test]
fn a_deleted_snapshot_goes_while_its_files_are_open() {
    let Some(kit) = Kit::new() else { return };
    kit.ok(TREE);
    kit.take("one");
    let open = File::open(kit.path(".snapshots/one/a/b/c/big")).unwrap();
    let mut cached = File::open(kit.path("a/.snapshots/one/f")).unwrap();
    let dir = File::open(kit.path(".snapshots/one/a")).unwrap();
    let mut text = String::new();
    cached.read_to_string(&mut text).unwrap();
    kit.ok("echo other > a/f && mv a/b/g a/b/h && sync");
    kit.delete("one");
    let mut buffer = [0; 100];
    let stale = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    stale(open.read_at(&mut buffer, 200_000).unwrap_err());
    assert!(!kit.path(".snapshots/one/a").exists());
    assert!(!kit.path(".snapshots").exists());
    assert!(!kit.path("a/.snapshots/one/f").exists());
    let inside = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&dir).to_string());
    stale(fs::metadata(inside.join("never-seen")).unwrap_err());
    stale(
        fs::read_dir(&inside)
            .and_then(|mut list| list.next().unwrap())
            .unwrap_err(),
    );
    // Another one of that name.
    kit.take("one");
    assert_eq!(
        kit.ok("cat .snapshots/one/a/f a/.snapshots/one/b/h"),
        "other\ntwo\n"
    );
    assert!(!kit.path(".snapshots/one/a/b/g").exists());
    stale(open.read_at(&mut buffer, 200_000).unwrap_err());
}

#[test]
fn a_thousand_snapshots_are_listed() {
    let Some(kit) = Kit::new() else { return };
    kit.ok("mkdir a && echo text > a/f");
    for number in 0..1000 {
        kit.take(&format!("s-{number}"));
    }
    for dir in [".snapshots", "a/.snapshots"] {
        assert_eq!(kit.ok(&format!("ls {dir} | sort -u | wc -l")), "1000\n");
        let inodes = kit.ok(&format!(
            "ls -il {dir} | tail -n +2 | awk '{{print $1}}' | sort -u | wc -l"
        ));
        assert_eq!(inodes, "1000\n");
    }
    assert_eq!(
        kit.ok("cat .snapshots/s-999/a/f && cat a/.snapshots/*/f | wc -l"),
        "text\n1000\n"
    );
    kit.delete("s-500");
    assert_eq!(kit.ok("ls .snapshots | wc -l"), "999\n");
}

#[test]
fn permissions_hold_as_they_were() {
    if !is_root() {
        return;
    }
    let Some(kit) = Kit::new() else { return };
    kit.ok(
        "chmod 755 . && mkdir -m 700 secret && echo s > secret/f && mkdir open && echo o > open/f && chmod 600 open/f && echo r > r \
        && echo acl > acl && chmod 600 acl && setfacl -m u:65534:r acl && mkdir -m 777 w && sync",
    );
    kit.take("one");
    kit.ok("chmod 755 secret && chmod 644 open/f && setfacl -b acl && chmod 700 open && sync");
    for refused in [
        "cat .snapshots/one/secret/f",
        "ls .snapshots/one/secret",
        "cat secret/.snapshots/one/f",
        "cat .snapshots/one/open/f",
        "ls open/.snapshots",
        "echo > .snapshots/one/w/new",
        "echo > .snapshots/one/r",
    ] {
        assert!(
            !as_nobody(&kit.mount, refused).status.success(),
            "{refused}"
        );
    }
    let said = ok_as_nobody(
        &kit.mount,
        "cat .snapshots/one/r .snapshots/one/acl && ls .snapshots/one/open && cat secret/f && ls secret/.snapshots",
    );
    assert_eq!(said, "r\nacl\nf\ns\none\n");
    let mode = |name: &str| fs::metadata(kit.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(
        (mode("open/.snapshots"), mode("open/.snapshots/one")),
        (0o500, 0o755)
    );
}

#[test]
fn snapshots_are_shown_over_io_uring() {
    let options = MountOptions {
        transport: Transport::IoUring,
        ..for_all_users()
    };
    let Some(kit) = Kit::with(options, SnapshotDirectory::default()) else {
        return;
    };
    kit.ok(TREE);
    let then = kit.copied("", "then");
    kit.take("one");
    kit.ok("rm -r a");
    same(&kit.path(".snapshots/one"), &then);
    refused(&kit.path(".snapshots/one"), "EROFS", "write('t')");
}
