//! Directories of other encrypting file systems: known by their configuration, mounted read-only by their own programs for as long
//! as an import takes.
//!
//! 1. The passphrase goes to the program's standard input, never into an argument or the environment.
//! 2. The program stays a child of this process and ends when this process does, however that ends (PR_SET_PDEATHSIG):
//!    no mount outlives an import, but for one that nobody answers for, which the next import of the same directory removes.
//! 3. The mountpoint is a directory of this user's alone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ask;
use crate::credentials;
use crate::error::{Error, Result};
use crate::exit::Exit;

/// How long a program may take to mount: deriving a key takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long it may take to end once it was asked to.
const END_PATIENCE: Duration = Duration::from_secs(20);
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
    mountpoint: PathBuf,
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
        let mountpoint = mountpoint(&source)?;
        let own = std::env::current_exe().map_err(|e| Error::failed(format!("{what}: {e}")))?;
        let mut child = Command::new(own)
            .arg(CHILD_COMMAND)
            .arg(std::process::id().to_string())
            .arg(peer.program)
            .args(peer.command_line(&source, &mountpoint))
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
        while !mounted.is_mounted() {
            if let Some(words) = mounted.ended() {
                return Err(Error::said(
                    Exit::Failed,
                    format!(
                        "{what}, which its program does not mount: {words}; is the passphrase right? Otherwise {by_hand}"
                    ),
                ));
            }
            if began.elapsed() > PATIENCE {
                return Err(Error::failed(format!(
                    "{what}, which its program did not mount in {} seconds; {by_hand}",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(mounted)
    }

    pub(super) fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Fails where the program has ended: what looks like an empty directory then is none.
    pub(super) fn is_alive(&self) -> Result<()> {
        if self.ended().is_none() && self.is_mounted() {
            return Ok(());
        }
        Err(Error::failed(format!(
            "{}: {} has ended before all was read; run the same command again",
            self.source.display(),
            self.peer.program
        )))
    }

    fn is_mounted(&self) -> bool {
        let above = self.mountpoint.parent().unwrap_or(Path::new("/"));
        match (fs::symlink_metadata(&self.mountpoint), fs::metadata(above)) {
            (Ok(here), Ok(above)) => here.dev() != above.dev(),
            _ => false,
        }
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
                self.mountpoint.display(),
                self.mountpoint.display()
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
        while self.ended().is_none() && began.elapsed() < END_PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.is_mounted() {
            detach(&self.mountpoint);
        }
        let mut child = self.child.borrow_mut();
        let _ = child.kill();
        let _ = child.wait();
        fs::remove_dir(&self.mountpoint).map_err(|e| e.to_string())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mountpoint.exists() {
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

/// Takes a mount away whether or not its program answers.
fn detach(mountpoint: &Path) {
    for program in ["fusermount3", "fusermount"] {
        let _ = Command::new(program)
            .args(["-u", "-z"])
            .arg(mountpoint)
            .stderr(Stdio::null())
            .status();
    }
}

/// Whether nobody answers for what is mounted there any more.
fn is_dead(path: &Path) -> bool {
    let not_connected = rustix::io::Errno::NOTCONN.raw_os_error();
    fs::metadata(path).is_err_and(|e| e.raw_os_error() == Some(not_connected))
}

/// A directory of this user's alone. Named after the source, so that one left by a killed run is used again and then removed.
fn mountpoint(source: &Path) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let uid = rustix::process::geteuid().as_raw();
    let digest = blake3::hash(source.as_os_str().as_bytes()).to_hex();
    let path = std::env::temp_dir().join(format!("strongroom-import-{uid}-{}", &digest[..16]));
    match DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => return Ok(path),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::host(&path, e)),
    }
    // A program that is told to end just when it has mounted may not listen yet, and leaves its mount.
    if is_dead(&path) {
        detach(&path);
    }
    let there = fs::symlink_metadata(&path).map_err(|e| Error::host(&path, e))?;
    let is_free = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
    if there.is_dir() && there.uid() == uid && there.mode() & 0o077 == 0 && is_free {
        return Ok(path);
    }
    Err(Error::failed(format!(
        "{}: in the way: another import of the same directory runs, or it was left by one; unmount and remove it",
        path.display()
    )))
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
    eprintln!("{}: {error}", program.display());
    if error.kind() == std::io::ErrorKind::NotFound {
        eprintln!("install the program (on Debian, the package of that name)");
    }
    Exit::Failed.into()
}
