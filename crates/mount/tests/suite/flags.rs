//! Append-only and immutable files on a real mount, set by chattr(1) and by ioctl.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{Mount, as_nobody, is_root, ok, sh};
use rustix::fs::{FallocateFlags, IFlags, ioctl_getflags, ioctl_setflags};

/// A mount on which flags can be set, with a file `f` and a directory `d` of one file.
fn mounted() -> Option<Mount> {
    if !is_root() {
        return None;
    }
    let mount = Mount::new()?;
    ok(
        &mount,
        "echo text > f && mkdir d && echo inner > d/g && sync",
    );
    Some(mount)
}

fn set(path: &Path, flags: IFlags) {
    ioctl_setflags(File::open(path).unwrap(), flags).unwrap();
}

fn get(path: &Path) -> IFlags {
    ioctl_getflags(File::open(path).unwrap()).unwrap()
}

/// A file opened to read and write, and to append.
fn opened(path: &Path) -> (File, File) {
    let open = |options: &mut OpenOptions| options.open(path).unwrap();
    (
        open(OpenOptions::new().read(true).write(true)),
        open(OpenOptions::new().append(true)),
    )
}

/// Each line of a script fails with EPERM.
fn refused(mount: &Mount, script: &str) {
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let out = sh(mount, line);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && said.contains("Operation not permitted"),
            "{line}: {}, {said}",
            out.status
        );
    }
}

fn is_eperm<T: std::fmt::Debug>(result: std::io::Result<T>, what: &str) {
    let error = result.expect_err(what);
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{what}");
}

#[test]
fn chattr_and_lsattr_work_and_flags_are_durable() {
    let Some(mount) = mounted() else { return };
    let listed = |mount: &Mount, name: &str| {
        let out = ok(mount, &format!("lsattr -d {name}"));
        out.split(' ').next().unwrap().replace('-', "")
    };
    assert_eq!(listed(&mount, "f"), "");
    ok(&mount, "chattr +i f && chattr +a d");
    assert_eq!(listed(&mount, "f"), "i");
    assert_eq!(listed(&mount, "d"), "a");
    assert_eq!(get(&mount.path("f")), IFlags::IMMUTABLE);
    let mount = mount.again();
    assert_eq!(listed(&mount, "f"), "i");
    assert_eq!(listed(&mount, "d"), "a");
    ok(&mount, "chattr =ai f && chattr -a d");
    assert_eq!(listed(&mount, "f"), "ia");
    assert_eq!(listed(&mount, "d"), "");
    ok(&mount, "chattr -ia f && echo more >> f && rm -r f d");
    // What a room does not have is refused.
    ok(&mount, "echo > f && ln -s f l");
    let out = sh(&mount, "chattr +d f");
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("not supported"),
        "{out:?}"
    );
}

#[test]
fn only_a_privileged_process_changes_flags() {
    let Some(mount) = mounted() else { return };
    ok(&mount, "chown -R 65534:65534 f d");
    for command in ["chattr +i f", "chattr +a f", "chattr +a d"] {
        let out = as_nobody(&mount, command);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            said.contains("Operation not permitted"),
            "{command}: {said}"
        );
    }
    ok(&mount, "chattr +i f");
    assert!(!as_nobody(&mount, "chattr -i f").status.success());
    assert_eq!(get(&mount.path("f")), IFlags::IMMUTABLE);
}

const NOTHING_OF_IT_CHANGES: &str = "rm -f f
    mv f elsewhere
    mv d/g f
    ln f elsewhere
    chmod 600 f
    chown 1:1 f
    touch f
    touch -d 2001-01-01 f
    truncate -s 1 f
    truncate -s 100 f
    cp d/g f
    echo new > f
    tee -a f < d/g
    setfattr -n user.note -v x f
    fallocate -l 10000 f
    fallocate -p -l 4096 f";

const NO_NAME_OF_IT_CHANGES: &str = "rm d/g
    mv d/g elsewhere
    mv f d/elsewhere
    mkdir d/new
    touch d/new
    ln f d/new
    ln -s f d/new
    mkfifo d/new
    chmod 700 d
    setfattr -n user.note -v x d
    mv d elsewhere
    rm -r d";

#[test]
fn nothing_of_an_immutable_file_changes() {
    let Some(mount) = mounted() else { return };
    ok(&mount, "setfattr -n user.old -v x f && chattr +i f d");
    // On this mount files are opened without asking, on the second they are not.
    let check = |mount: &Mount| {
        refused(mount, NOTHING_OF_IT_CHANGES);
        refused(mount, NO_NAME_OF_IT_CHANGES);
        refused(mount, "setfattr -x user.old f");
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"text\n");
        // What is in an immutable directory is not immutable itself.
        ok(mount, "echo more >> d/g && chmod 600 d/g");
    };
    check(&mount);
    let mount = mount.again();
    check(&mount);
    let open = |options: &mut OpenOptions| options.open(mount.path("f"));
    is_eperm(open(OpenOptions::new().write(true)), "open");
    is_eperm(open(OpenOptions::new().append(true)), "open to append");
    ok(&mount, "chattr -i f d && echo new > f && rm -r f d");
}

#[test]
fn a_file_that_is_open_becomes_immutable_at_once() {
    let Some(mount) = mounted() else { return };
    let path = mount.path("f");
    let (mut file, mut appending) = opened(&path);
    // Written before, and still in the kernel's cache: it counts.
    file.write_all(b"TEXT").unwrap();
    appending.write_all(b"more\n").unwrap();
    set(&path, IFlags::IMMUTABLE);
    is_eperm(file.write_all_at(b"x", 0), "write");
    is_eperm(appending.write_all(b"x"), "append");
    is_eperm(file.set_len(1), "truncate");
    is_eperm(
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).map_err(Into::into),
        "fallocate",
    );
    // Reading is not disturbed, up to the end and beyond it.
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "TEXT\nmore\n");
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 10);
    file.sync_all().unwrap();
    set(&path, IFlags::empty());
    file.write_all_at(b"back", 0).unwrap();
    drop((file, appending));
    let mount = mount.again();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"back\nmore\n");
}

#[test]
fn what_a_mapping_writes_to_an_immutable_file_does_not_stay() {
    let Some(mount) = mounted() else { return };
    let path = mount.path("f");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let script = format!(
        "import fcntl, mmap, struct
f = open({path:?}, 'r+b')
m = mmap.mmap(f.fileno(), 5)
m[0:1] = b'T'
fcntl.ioctl(f.fileno(), 0x40086602, struct.pack('i', 0x10))
m[1:2] = b'E'
try:
    m.flush()
    raise SystemExit('no error')
except OSError:
    pass
"
    );
    let out = Command::new("python3").args(["-c", &script]).output();
    let Ok(out) = out else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    drop(file);
    let mount = mount.again();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"Text\n");
}

#[test]
fn an_append_only_file_is_only_added_to() {
    let Some(mount) = mounted() else { return };
    ok(&mount, "chattr +a f");
    let check = |mount: &Mount| {
        let others = "rm -f f
            mv f elsewhere
            mv d/g f
            ln f elsewhere
            chmod 600 f
            chown 1:1 f
            touch -d 2001-01-01 f
            touch -m -d 2001-01-01 f
            truncate -s 1 f
            truncate -s 100 f
            echo new > f
            setfattr -n user.note -v x f
            fallocate -p -l 4096 f";
        refused(mount, others);
        ok(mount, "touch f && echo more >> f && sync f");
        let mut appending = OpenOptions::new()
            .append(true)
            .open(mount.path("f"))
            .unwrap();
        for _ in 0..3 {
            appending.write_all(b"and more\n").unwrap();
            appending.sync_all().unwrap();
        }
        appending.write_all(b"end\n").unwrap();
        drop(appending);
    };
    let added = "more\nand more\nand more\nand more\nend\n";
    check(&mount);
    assert_eq!(
        fs::read_to_string(mount.path("f")).unwrap(),
        format!("text\n{added}")
    );
    let mount = mount.again();
    is_eperm(OpenOptions::new().write(true).open(mount.path("f")), "open");
    check(&mount);
    let mount = mount.again();
    assert_eq!(
        fs::read_to_string(mount.path("f")).unwrap(),
        format!("text\n{added}{added}")
    );
    ok(&mount, "chattr -a f && echo new > f && rm f");
}

/// The mount on which the first flag is set opens files without asking.
#[test]
fn a_write_into_an_append_only_file_is_refused_when_it_is_passed_on() {
    let Some(mount) = mounted() else { return };
    let path = mount.path("f");
    let (file, mut appending) = opened(&path);
    set(&path, IFlags::APPEND);
    appending.write_all(b"one\n").unwrap();
    appending.sync_all().unwrap();
    file.write_all_at(b"XX", 4).unwrap();
    is_eperm(file.sync_all(), "what was there before");
    // What others added in the same pages is not lost with it.
    appending.write_all(b"two\n").unwrap();
    file.write_all_at(b"XX", 6).unwrap();
    is_eperm(file.sync_all(), "what was added");
    drop((file, appending));
    let mount = mount.again();
    assert_eq!(
        fs::read_to_string(mount.path("f")).unwrap(),
        "text\none\ntwo\n"
    );
}

/// The kernel writes pages back in any order; nothing that was appended is refused.
#[test]
fn much_is_appended_by_many_at_once() {
    let Some(mount) = mounted() else { return };
    ok(&mount, ": > log && chattr +a log");
    let path = mount.path("log");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for line in 0..2000 {
                    let text = format!("{writer} {line} {}\n", "x".repeat(line % 700));
                    file.write_all(text.as_bytes()).unwrap();
                    if line % 500 == 0 {
                        file.sync_all().unwrap();
                    }
                }
                file.sync_all().unwrap();
            });
        }
    });
    let mount = mount.again();
    let text = fs::read_to_string(mount.path("log")).unwrap();
    assert_eq!(text.lines().count(), 8000);
    for writer in 0..4 {
        let mine = text
            .lines()
            .filter(|l| l.starts_with(&format!("{writer} ")));
        for (expected, line) in mine.enumerate() {
            let mut words = line.split(' ');
            assert_eq!(words.nth(1).unwrap(), expected.to_string());
            assert_eq!(words.next().unwrap().len(), expected % 700);
        }
    }
}

#[test]
fn an_append_only_directory_only_gains_names() {
    let Some(mount) = mounted() else { return };
    ok(&mount, "chattr +a d");
    refused(
        &mount,
        "rm d/g
        mv d/g elsewhere
        mv d/g d/h
        mv f d/g
        chmod 700 d
        rm -r d",
    );
    ok(
        &mount,
        "touch d/new && mkdir d/sub && ln f d/hard && mv f d/f",
    );
    symlink("f", mount.path("d/soft")).unwrap();
    ok(&mount, "echo more >> d/g && chattr -a d && rm -r d");
}

#[test]
fn extended_flags_are_the_same_flags() {
    let Some(mount) = mounted() else { return };
    // FS_IOC_FSSETXATTR and FS_IOC_FSGETXATTR.
    let script = "import fcntl, struct
f = open('f', 'rb')
fcntl.ioctl(f.fileno(), 0x401c5820, struct.pack('7I', 0x10, 0, 0, 0, 0, 0, 0))
got = fcntl.ioctl(f.fileno(), 0x801c581f, bytes(28))
print(struct.unpack('7I', got)[0])
";
    let out = Command::new("python3")
        .args(["-c", script])
        .current_dir(mount.path(""))
        .output();
    let Ok(out) = out else {
        eprintln!("skipped: there is no python3");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&out.stdout), "16\n", "{out:?}");
    assert_eq!(get(&mount.path("f")), IFlags::APPEND);
}

#[test]
fn what_has_no_flags_says_so() {
    let Some(mount) = mounted() else { return };
    ok(&mount, "mkfifo p");
    let pipe = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(mount.path("p"))
        .unwrap();
    let error = ioctl_getflags(pipe.as_fd()).unwrap_err();
    assert_eq!(error, rustix::io::Errno::NOTTY);
    let gone = File::open(mount.path("nothing")).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}
