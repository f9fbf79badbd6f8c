//! A writer: a process that works on its own files of a mount until it is stopped or the mount is gone, keeps the
//! journal, and looks at what it reads.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::pages::content;
use super::story::{Journal, Kind, Story, path_of};
use fastrand::Rng;

/// Files of each writer.
pub const FILES: u64 = 8;

/// The orders of a writer, through its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    pub root: PathBuf,
    pub journal: PathBuf,
    /// When this file is there, the writer ends.
    pub stop: PathBuf,
    pub seed: u64,
    pub writer: u64,
    pub round: u64,
    /// A directory is synced after a change of names in it: a mount of one machine, other than shared storage, makes such a
    /// change durable with its next commit.
    pub sync_names: bool,
}

impl Orders {
    /// One line, for the environment.
    pub fn line(&self) -> String {
        format!(
            "{} {} {} {} {} {} {}",
            self.seed,
            self.writer,
            self.round,
            self.root.display(),
            self.journal.display(),
            self.stop.display(),
            self.sync_names
        )
    }

    pub fn parse(line: &str) -> Orders {
        let words: Vec<&str> = line.split(' ').collect();
        Orders {
            seed: words[0].parse().unwrap(),
            writer: words[1].parse().unwrap(),
            round: words[2].parse().unwrap(),
            root: words[3].into(),
            journal: words[4].into(),
            stop: words[5].into(),
            sync_names: words[6].parse().unwrap(),
        }
    }
}

/// Works. An error says what was found that should not be.
pub fn work(orders: &Orders) -> Result<(), String> {
    let mut story = Story::read(&orders.journal);
    let mut journal = Journal::append(&orders.journal);
    let mut random = Rng::with_seed(orders.seed ^ (orders.writer << 32) ^ (orders.round << 40));
    let directory = path_of(&orders.root, orders.writer, 0);
    let directory = directory.parent().unwrap();
    let device = device_of(&orders.root);
    while !orders.stop.exists() {
        match std::fs::create_dir(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                if is_gone(&e) {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            _ => break,
        }
    }
    while !orders.stop.exists() {
        let file = random.u64(..FILES);
        if random.u64(..3) == 0 {
            match look(orders, &story, file) {
                // What is seen is the directory below a mount that was removed.
                Err(_) if device_of(&orders.root) != device => return Ok(()),
                seen => seen?,
            }
            continue;
        }
        let kind = match random.u64(..10) {
            0..3 => Kind::Write,
            3..6 => Kind::Sync,
            6..8 => Kind::Replace,
            8 => Kind::Remove,
            _ => Kind::Settle,
        };
        // There is nothing to remove or to sync where a file is not, or may not be.
        let there = matches!(story.exact(file), Some((_, true)));
        let kind = match kind {
            Kind::Remove | Kind::Settle if !there => Kind::Sync,
            kind => kind,
        };
        let version = story.latest(file) + u64::from(kind != Kind::Settle);
        journal.began(kind, file, version);
        let answer = carry_out(orders, kind, file, version);
        let error = match &answer {
            Ok(()) => 0,
            Err(e) => e.raw_os_error().unwrap_or(-1),
        };
        let gone = answer.as_ref().is_err_and(is_gone);
        if !gone {
            journal.ended(error);
        }
        story.0.push(super::story::Entry {
            kind,
            file,
            version,
            ended: (!gone).then_some(error),
        });
        if gone {
            return Ok(());
        }
        if error != 0 {
            // Whatever is wrong will not be better at once.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// The device of a mount; `None` where it cannot be asked for.
fn device_of(root: &Path) -> Option<u64> {
    std::fs::metadata(root).ok().map(|found| found.dev())
}

/// Whether the mount is gone: what happens to a mount whose process was killed.
fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::NOTCONN, Errno::CONNABORTED];
    gone.iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn carry_out(orders: &Orders, kind: Kind, file: u64, version: u64) -> io::Result<()> {
    let path = path_of(&orders.root, orders.writer, file);
    let bytes = || content(orders.seed, orders.writer, file, version);
    let write = |path: &PathBuf, sync: bool| -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.write_all(&bytes())?;
        if sync {
            file.sync_all()?;
        }
        close(file)
    };
    let names = || match orders.sync_names {
        true => File::open(path.parent().unwrap())?.sync_all(),
        false => Ok(()),
    };
    match kind {
        Kind::Write => write(&path, false),
        Kind::Sync => write(&path, true),
        Kind::Replace => {
            let new = path.with_extension("new");
            write(&new, true)?;
            std::fs::rename(&new, &path)?;
            names()
        }
        Kind::Remove => {
            std::fs::remove_file(&path)?;
            names()
        }
        Kind::Settle => File::open(&path)?.sync_all(),
    }
}

/// close(2) with its answer, which dropping a file does not return.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is nobody's any more, and closed once.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file that nothing is open about has exactly its last version; another one may have.
fn look(orders: &Orders, story: &Story, file: u64) -> Result<(), String> {
    let path = path_of(&orders.root, orders.writer, file);
    let mut bytes = Vec::new();
    let found = match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => Some(&bytes[..]),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        // A peer is away. What this means for the file is seen when it is back.
        Err(_) => return Ok(()),
    };
    story.judge(orders.seed, orders.writer, file, found, true)
}
