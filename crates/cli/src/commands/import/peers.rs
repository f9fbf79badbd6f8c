//! Directories of other encrypting file systems: known by their configuration, mounted read-only by their own programs for as long
//! as an import takes.
//!
//! 1. The passphrase goes to the program's standard input, never into an argument or the environment.
//! 2. The program stays a child of this process and ends when this process does, however that ends (PR_SET_PDEATHSIG):
//!    a mount that outlives an import all the same is removed by the next import of the same directory.
//! 3. The mountpoint is in a directory of this user's alone, which is locked: what is mounted there and not locked is a leftover.
//!    It is never looked into: where a program was killed at a bad moment, the kernel waits for its answer without end.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mount::Detach;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::ask;
use crate::credentials;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounts;
use crate::output;

/// How long a program may take to mount: deriving a key takes seconds.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long it may take to end once it was asked to.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// How this program is called to become another that ends with its parent.
pub(crate) const CHILD_COMMAND: &str = "end-with-parent";

/// An encrypting file system whose directories are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    name: &'static str,
    /// Files that a directory of it has at its top.
    marks: &'static [&'static str],
    program: &'static str,
    /// Its arguments; `SOURCE` and `MOUNTPOINT` are replaced by the two.
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const PEERS: [Peer; 4] = [
    Peer {
        name: "gocryptfs",
        marks: &["gocryptfs.conf"],
        program: "gocryptfs",
        arguments: &[
            "-fg",
            "-ro",
            "-q",
            "-nosyslog",
            "--",
            "SOURCE",
            "MOUNTPOINT",
        ],
        environment: &[],
    },
    Peer {
        name: "CryFS",
        marks: &["cryfs.config"],
        program: "cryfs",
        arguments: &["-f", "SOURCE", "MOUNTPOINT", "--", "-o", "ro,noatime"],
        environment: &[
            ("CRYFS_FRONTEND", "noninteractive"),
            ("CRYFS_NO_UPDATE_CHECK", "true"),
        ],
    },
    Peer {
        name: "EncFS",
        marks: &[".encfs6.xml", ".encfs5", ".encfs4"],
        program: "encfs",
        arguments: &["-f", "--stdinpass", "SOURCE", "MOUNTPOINT", "-o", "ro"],
        environment: &[],
    },
    Peer {
        name: "securefs",
        marks: &[".securefs.json", ".config.pb", ".config.json"],
        program: "securefs",
        arguments: &["mount", "-o", "ro", "SOURCE", "MOUNTPOINT"],
        environment: &[],
    },
];

/// Whose directory this is, if it is one of theirs.
pub(super) fn find(dir: &Path) -> Option<Peer> {
    PEERS
        .into_iter()
        .find(|peer| peer.marks.iter().any(|mark| dir.join(mark).is_file()))
}

impl Peer {
    fn command_line(&self, source: &Path, mountpoint: &Path) -> Vec<OsString> {
        self.arguments
            .iter()
            .map(|argument| match *argument {
                "SOURCE" => source.into(),
                "MOUNTPOINT" => mountpoint.into(),
                other => other.into(),
            })
            .collect()
    }
}

/// A directory of a peer, mounted for as long as this lives.
#[derive(Debug)]
pub(super) struct Mounted {
    peer: Peer,
    source: PathBuf,
    mountpoint: Mountpoint,
    child: std::cell::RefCell<Child>,
}

impl Mounted {
    pub(super) fn mount(peer: Peer, source: &Path, passphrase: Option<&Path>) -> Result<Self> {
        let source = source.canonicalize().map_err(|e| Error::host(source, e))?;
        let by_hand = format!(
            "mount it read-only yourself ({} {}), and import the mountpoint",
            peer.program,
            peer.command_line(Path::new("SOURCE"), Path::new("MOUNTPOINT"))
                .join(OsStr::new(" "))
                .display()
        );
        let what = format!("{}: a directory of {}", source.display(), peer.name);
        let secret = match passphrase {
            Some(file) => credentials::passphrase_file(file)?,
            None if ask::somebody_is_there() => ask::passphrase(&source.display().to_string())?,
            None => {
                return Err(Error::usage(format!(
                    "{what}: name its passphrase's file with --source-passphrase-file, or {by_hand}"
                )));
            }
        };
        let mountpoint = Mountpoint::create(&source)?;
        let own = std::env::current_exe().map_err(|e| Error::failed(format!("{what}: {e}")))?;
        let mut child = Command::new(own)
            .arg(CHILD_COMMAND)
            .arg(std::process::id().to_string())
            .arg(peer.program)
            .args(peer.command_line(&source, &mountpoint.path))
            .envs(peer.environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Error::failed(format!("{what}: {e}")))?;
        // A program that ended before reading says why on its standard error.
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin
                .write_all(secret.expose())
                .and_then(|()| stdin.write_all(b"\n"));
        }
        let mounted = Self {
            peer,
            source,
            mountpoint,
            child: child.into(),
        };
        let began = Instant::now();
        while !mounted.mountpoint.is_mounted() {
            if let Some(words) = mounted.ended() {
                return Err(Error::said(
                    Exit::Failed,
                    format!(
                        "{what}, which its program does not mount: {words}; is the passphrase right? Otherwise {by_hand}"
                    ),
                ));
            }
            if began.elapsed() > TIMEOUT {
                return Err(Error::failed(format!(
                    "{what}, which its program did not mount in {} seconds; {by_hand}",
                    TIMEOUT.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(mounted)
    }

    pub(super) fn path(&self) -> &Path {
        &self.mountpoint.path
    }

    /// Fails where the program has ended: what looks like an empty directory then is none.
    pub(super) fn is_alive(&self) -> Result<()> {
        if self.ended().is_none() && self.mountpoint.is_mounted() {
            return Ok(());
        }
        Err(Error::failed(format!(
            "{}: {} has ended before all was read; run the same command again",
            self.source.display(),
            self.peer.program
        )))
    }

    /// What the program said at its end, if it has ended.
    fn ended(&self) -> Option<String> {
        let mut child = self.child.borrow_mut();
        let status = child.try_wait().ok().flatten()?;
        let mut words = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(4096).read_to_end(&mut words);
        }
        let words = output_words(&words);
        Some(if words.is_empty() {
            status.to_string()
        } else {
            words
        })
    }

    /// Unmounts.
    pub(super) fn end(self) -> Result<()> {
        self.unmount().map_err(|why| {
            Error::failed(format!(
                "{}: cannot be unmounted ({why}); unmount it with: fusermount -u {}",
                self.path().display(),
                self.path().display()
            ))
        })
    }

    fn unmount(&self) -> std::result::Result<(), String> {
        if self.ended().is_none()
            && let Ok(id) = i32::try_from(self.child.borrow().id())
            && let Some(pid) = rustix::process::Pid::from_raw(id)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        while self.ended().is_none() && began.elapsed() < END_TIMEOUT {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.mountpoint.is_mounted() {
            detach(self.path());
        }
        let mut child = self.child.borrow_mut();
        let _ = child.kill();
        let _ = child.wait();
        self.mountpoint.remove().map_err(|e| e.to_string())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mountpoint.dir.exists() {
            let _ = self.unmount();
        }
    }
}

/// One line of what a program said.
fn output_words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| crate::output::shown(OsStr::new(line.trim())))
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("; ")
}

/// Unmounts whether or not a program answers.
fn detach(mountpoint: &Path) {
    // Root's way ends what waits for an answer, too.
    if mount::detach(mountpoint, Detach::ByForce).is_ok() {
        return;
    }
    // Other tools may have come with the older one alone.
    for program in ["fusermount3", "fusermount"] {
        let _ = Command::new(program)
            .args(["-u", "-z"])
            .arg(mountpoint)
            .stderr(Stdio::null())
            .status();
    }
}

/// Where a directory is mounted for an import.
#[derive(Debug)]
struct Mountpoint {
    /// Named after the source, so that a leftover is found.
    dir: PathBuf,
    /// In it, with a name that no leftover has.
    path: PathBuf,
    /// Of `dir`, locked.
    _lock: File,
}

impl Mountpoint {
    fn create(source: &Path) -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let digest = blake3::hash(source.as_os_str().as_bytes()).to_hex();
        let temporary = std::env::temp_dir();
        let temporary = temporary
            .canonicalize()
            .map_err(|e| Error::host(&temporary, e))?;
        let dir = temporary.join(format!("strongroom-import-{uid}-{}", &digest[..16]));
        let failed = |e: std::io::Error| Error::host(&dir, e);
        let in_the_way = |why: &str| Error::failed(format!("{}: in the way: {why}", dir.display()));
        let lock = loop {
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
                _ => {}
            }
            let there = fs::symlink_metadata(&dir).map_err(failed)?;
            if !there.is_dir() || there.uid() != uid || there.mode() & 0o077 != 0 {
                return Err(in_the_way(
                    "it is not a directory of yours alone; remove it",
                ));
            }
            let lock = File::open(&dir).map_err(failed)?;
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    return Err(in_the_way("another import of the same directory runs"));
                }
                other => other.map_err(|e| failed(e.into()))?,
            }
            // The import that ended just now may have removed it.
            if fs::symlink_metadata(&dir).is_ok_and(|now| now.ino() == there.ino()) {
                break lock;
            }
        };
        for leftover in mounts::mountpoints_in(&dir) {
            detach(&leftover);
        }
        for leftover in fs::read_dir(&dir).map_err(failed)?.flatten() {
            fs::remove_dir(leftover.path()).map_err(failed)?;
        }
        let path = dir.join(std::process::id().to_string());
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(failed)?;
        Ok(Self {
            dir,
            path,
            _lock: lock,
        })
    }

    fn is_mounted(&self) -> bool {
        mounts::mountpoints_in(&self.dir).contains(&self.path)
    }

    fn remove(&self) -> std::io::Result<()> {
        fs::remove_dir(&self.path)?;
        fs::remove_dir(&self.dir)
    }
}

/// Becomes another program, which ends when this one's parent does. Returns only where that fails.
pub(crate) fn become_child(arguments: &[OsString]) -> std::process::ExitCode {
    let [_, _, parent, program, rest @ ..] = arguments else {
        return Exit::Usage.into();
    };
    let failed =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    // A parent that ended before that would never be missed.
    let is_there = rustix::process::getppid().is_some_and(|pid| {
        Some(pid.as_raw_nonzero().get().to_string().as_str()) == parent.to_str()
    });
    if failed.is_err() || !is_there {
        return Exit::Failed.into();
    }
    let error = Command::new(program).args(rest).exec();
    output::to_stderr(format_args!("{}: {error}", program.display()));
    if error.kind() == ErrorKind::NotFound {
        output::to_stderr("install the program (on Debian, the package of that name)");
    }
    Exit::Failed.into()
}
