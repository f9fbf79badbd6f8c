//! A directory that a confined process may not reach, through the command that asked it to work there.
//!
//! The process that serves a room has dropped every directory but the room's own. When it is asked for a backup, it sends each step
//! (open this file, rename that one) to the command, which carries it out in the directory that its user named and sends back
//! open files.
//!
//! 1. The command touches nothing but names right in the directory or one level below it, whatever the process asks for.
//! 2. The process gets only files of that directory, and only for as long as its request runs. Where it was asked for a stream,
//!    it gets the end of a pipe for that too.
//! 3. A step that was not answered is the last one: its answer, if it came later, would be taken for that of the next.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use storage::{HostStorage, LockGuard, OpenMode, Space, Storage, StorageFile};

use crate::descriptors::{self, Lines, encode_line};

/// The most bytes of an answer: the names of a directory.
const ANSWER_MAX: usize = 64 << 20;
/// How long the command may take for a step: a slow disk makes names durable in it.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);
/// How often it is looked whether a command is still to be waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A step in the directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Opens a file that is there.
    Open {
        /// Its path in the directory.
        path: String,
        /// Also for writing.
        write: bool,
    },
    /// Creates a file.
    Create {
        /// Its path.
        path: String,
    },
    /// Renames a file.
    Rename {
        /// Its path.
        from: String,
        /// Its path afterwards.
        to: String,
    },
    /// Removes a file.
    Remove {
        /// Its path.
        path: String,
    },
    /// Lists names.
    List {
        /// The directory in the directory; empty for itself.
        dir: String,
    },
    /// Creates a directory.
    CreateDir {
        /// Its path.
        path: String,
    },
    /// Makes names durable.
    SyncDir {
        /// The directory in the directory; empty for itself.
        dir: String,
    },
    /// Asks for the space of the file system.
    Space {},
    /// Asks for the pipe that takes the stream.
    Output {},
    /// Locks a file, which is created where it is missing.
    Lock {
        /// Its path.
        path: String,
        /// What the file then holds.
        note: String,
    },
}

/// How a step ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It was done; a file that was asked for comes with this.
    Done,
    Names(Vec<String>),
    Space {
        total: u64,
        free: u64,
        available: u64,
    },
    /// It failed with this number of the system's.
    Failed(i32),
}

/// The command's side: one directory, and a pipe where a stream is awaited.
#[derive(Debug)]
pub(crate) struct Broker {
    dir: HostStorage,
    /// It goes once, so that the stream ends when the process closes it.
    output: Mutex<Option<File>>,
}

impl Broker {
    pub(crate) fn of(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            dir: HostStorage::open(dir)?,
            output: Mutex::new(None),
        })
    }

    /// The same with what takes a stream.
    pub(crate) fn with_output(dir: &Path, output: File) -> io::Result<Self> {
        let broker = Self::of(dir)?;
        *broker.output.lock().unwrap_or_else(PoisonError::into_inner) = Some(output);
        Ok(broker)
    }

    /// Carries out a step, and answers on `stream`.
    pub(crate) fn answer(&self, step: &Step, stream: &UnixStream) -> io::Result<()> {
        let (outcome, file) = match self.carry_out(step) {
            Ok(done) => done,
            Err(e) => {
                let unknown = rustix::io::Errno::IO.raw_os_error();
                (Outcome::Failed(e.raw_os_error().unwrap_or(unknown)), None)
            }
        };
        let line = encode_line(&outcome);
        descriptors::send(stream, &line, file.as_ref().map(AsFd::as_fd))
    }

    fn carry_out(&self, step: &Step) -> io::Result<(Outcome, Option<File>)> {
        let dir = &self.dir;
        let done = |()| (Outcome::Done, None);
        let with = |file| (Outcome::Done, Some(file));
        match step {
            Step::Open { path, write } => {
                let mode = match write {
                    true => OpenMode::ReadWrite,
                    false => OpenMode::Read,
                };
                dir.open_file(inside(path)?, mode).map(with)
            }
            Step::Create { path } => dir.open_file(inside(path)?, OpenMode::CreateNew).map(with),
            Step::Rename { from, to } => dir.rename(inside(from)?, inside(to)?).map(done),
            Step::Remove { path } => dir.remove(inside(path)?).map(done),
            Step::List { dir: below } => {
                let names = dir.list(inside_or_itself(below)?)?;
                Ok((Outcome::Names(names), None))
            }
            Step::CreateDir { path } => dir.create_dir(inside(path)?).map(done),
            Step::SyncDir { dir: below } => dir.sync_dir(inside_or_itself(below)?).map(done),
            Step::Space {} => {
                let Space {
                    total,
                    free,
                    available,
                } = dir.space()?;
                Ok((
                    Outcome::Space {
                        total,
                        free,
                        available,
                    },
                    None,
                ))
            }
            Step::Output {} => {
                let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
                let output = output.take().ok_or(rustix::io::Errno::BADF)?;
                Ok(with(output))
            }
            Step::Lock { path, note } => dir.lock_file(inside(path)?, note).map(with),
        }
    }
}

/// Refuses what is not right in the directory or in one right in it.
fn inside(path: &str) -> io::Result<&str> {
    let plain = |part| matches!(part, Component::Normal(_));
    let parts = Path::new(path).components();
    match (1..=2).contains(&parts.clone().count()) && parts.clone().all(plain) {
        true => Ok(path),
        false => Err(rustix::io::Errno::PERM.into()),
    }
}

fn inside_or_itself(dir: &str) -> io::Result<&str> {
    match dir {
        "" => Ok(dir),
        _ => inside(dir),
    }
}

/// Does work that waits for a command on `stream`. From when it `stops`, no step of it waits any more: the command may be suspended.
pub(crate) fn waiting_unless<T>(
    stops: &(dyn Fn() -> bool + Sync),
    stream: &UnixStream,
    work: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        let (_goes_on, over) = mpsc::channel::<()>();
        let watch = move || {
            while over.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if stops() {
                    return drop(stream.shutdown(Shutdown::Read));
                }
            }
        };
        let watching = thread::Builder::new().name("broker".into());
        if let Err(e) = watching.spawn_scoped(scope, watch) {
            tracing::warn!("a command is waited for in any case: {e}");
        }
        work()
    })
}

/// The confined process's side.
#[derive(Debug)]
pub(crate) struct Brokered {
    /// `None`: a step was not answered.
    connection: Mutex<Option<(UnixStream, Lines)>>,
    /// The line that brings a step to the command, in the words of this socket.
    line: fn(Step) -> Vec<u8>,
}

impl Brokered {
    pub(crate) fn new(stream: &UnixStream, line: fn(Step) -> Vec<u8>) -> io::Result<Self> {
        let (sending, receiving) = (stream.try_clone()?, stream.try_clone()?);
        receiving.set_read_timeout(Some(STEP_TIMEOUT))?;
        Ok(Self {
            connection: Mutex::new(Some((sending, Lines::new(receiving)))),
            line,
        })
    }

    fn ask(&self, step: Step) -> io::Result<(Outcome, Option<File>)> {
        let line = (self.line)(step);
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (sending, receiving) = connection.as_mut().ok_or(ErrorKind::NotConnected)?;
        let sent = descriptors::send(sending, &line, None);
        let answered = sent.and_then(|()| receiving.next(ANSWER_MAX));
        let (answer, file) = answered.inspect_err(|_| *connection = None)?;
        match serde_json::from_slice(&answer)? {
            Outcome::Failed(number) => Err(io::Error::from_raw_os_error(number)),
            outcome => Ok((outcome, file)),
        }
    }

    /// The pipe that takes the stream.
    pub(crate) fn output(&self) -> io::Result<File> {
        self.ask_for_file(Step::Output {})
    }

    fn ask_for_nothing(&self, step: Step) -> io::Result<()> {
        self.ask(step).map(drop)
    }

    fn ask_for_file(&self, step: Step) -> io::Result<File> {
        self.ask(step)?
            .1
            .ok_or_else(|| ErrorKind::InvalidData.into())
    }
}

impl Storage for Brokered {
    fn open(&self, path: &str, mode: OpenMode) -> io::Result<Arc<dyn StorageFile>> {
        let path = path.to_owned();
        let step = match mode {
            OpenMode::Read => Step::Open { path, write: false },
            OpenMode::ReadWrite => Step::Open { path, write: true },
            OpenMode::CreateNew => Step::Create { path },
        };
        self.ask_for_file(step).map(storage::host_file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.ask_for_nothing(Step::Rename { from, to })
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = path.to_owned();
        self.ask_for_nothing(Step::Remove { path })
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let dir = dir.to_owned();
        match self.ask(Step::List { dir })?.0 {
            Outcome::Names(names) => Ok(names),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let path = path.to_owned();
        self.ask_for_nothing(Step::CreateDir { path })
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let dir = dir.to_owned();
        self.ask_for_nothing(Step::SyncDir { dir })
    }

    fn space(&self) -> io::Result<Space> {
        match self.ask(Step::Space {})?.0 {
            Outcome::Space {
                total,
                free,
                available,
            } => Ok(Space {
                total,
                free,
                available,
            }),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn lock(&self, path: &str, note: &str) -> io::Result<Box<dyn LockGuard>> {
        let (path, note) = (path.to_owned(), note.to_owned());
        self.ask_for_file(Step::Lock { path, note })
            .map(storage::host_lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokered() -> (Arc<dyn Storage>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let broker = Broker::of(dir.path()).unwrap();
        let (here, there) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut lines = Lines::new(there.try_clone().unwrap());
            // Ends with the other side.
            while let Ok((line, _)) = lines.next(1 << 20) {
                let step = serde_json::from_slice(&line).unwrap();
                broker.answer(&step, &there).unwrap();
            }
        });
        let line = |step| encode_line(&step).to_vec();
        (Arc::new(Brokered::new(&here, line).unwrap()), dir)
    }

    #[test]
    fn a_directory_through_a_command_keeps_the_contract() {
        storage::testing::contract::run(brokered);
    }

    /// What failed: a step got the answer of the one before, for which nobody had waited any more, and with it the file of that.
    #[test]
    fn after_a_step_without_an_answer_no_other_is_asked_for() {
        let (here, there) = UnixStream::pair().unwrap();
        let line = |step| encode_line(&step).to_vec();
        let storage = Brokered::new(&here, line).unwrap();
        here.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let first = storage.open("first", OpenMode::Read).unwrap_err();
        assert_eq!(first.kind(), ErrorKind::WouldBlock);
        let file = tempfile::tempfile().unwrap();
        descriptors::send(&there, &encode_line(&Outcome::Done), Some(file.as_fd())).unwrap();
        storage.open("second", OpenMode::Read).unwrap_err();
    }

    #[test]
    fn nothing_outside_the_directory_is_reached() {
        let (storage, dir) = brokered();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let outside = format!("../{}", dir.path().file_name().unwrap().display());
        for path in [
            "..",
            "../x",
            "/etc/passwd",
            "a/../../x",
            "a/b/c",
            "",
            &outside,
        ] {
            for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::CreateNew] {
                let refused = storage.open(path, mode).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{path}");
            }
            assert!(storage.rename(path, "x").is_err(), "{path}");
            assert!(storage.remove(path).is_err(), "{path}");
            assert!(storage.create_dir(path).is_err(), "{path}");
            assert!(storage.lock(path, "").is_err(), "{path}");
        }
        assert!(storage.list("..").is_err());
    }
}
