//! Mounting and unmounting for the process that serves a mount, which has dropped the right to.
//!
//! A confined process can neither mount nor unmount, nor start `fusermount3`. So it starts this program once more before it confines
//! itself. The helper mounts one room on one directory, with the options that it was given at the start, sends the connection to the
//! kernel, has the kernel write back, and unmounts when it is asked to. It parses nothing but one word at a time, and has no keys.
//!
//! 1. The helper ends when the serving process does. Signals do not end it: they ask the serving process to unmount.
//! 2. A [`Mounter`] owns no descriptor, so that the mount's own threads may have one: its connection is a thread's.
//! 3. Only the helper waits in the kernel for the mount. A killed process ends when its last thread does, and rings of io_uring with
//!    its memory: a thread of its own that waited for the mount would wait for the end of its own process.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc;

use mount::{Detach, MountError, MountOptions};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::launch::Plan;
use crate::control::server::Mount;
use crate::control::{ANSWER_LINE_MAX, Answer, Reply, encode_line};
use crate::descriptors::{self, Lines};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::unmount;

/// How this program is called to become the helper.
pub(crate) const COMMAND: &str = "mount-helper";

/// What the helper is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Word {
    Mount,
    /// This and the others: if the mount has this device number.
    Unmount(u64),
    UnmountLazily(u64),
    WriteBack(u64),
}

/// A word, and where its outcome goes.
pub(crate) type Order = (Word, mpsc::Sender<Result<Option<OwnedFd>>>);

/// Mounts and unmounts.
#[derive(Debug, Clone)]
pub(crate) enum Mounter {
    /// This process.
    Itself,
    /// Its helper, a process of this number.
    Helper(mpsc::Sender<Order>, u32),
}

/// A helper that waits for its first order.
#[derive(Debug)]
pub(crate) struct Helper {
    child: Child,
    stream: UnixStream,
}

impl Helper {
    /// Starts it. It has the rights of this process now, whatever that drops afterwards.
    pub(crate) fn start(plan: &Plan) -> Result<Helper> {
        let broken = |e: io::Error| {
            Error::failed(format!("the helper that mounts could not be started: {e}"))
        };
        let (stream, theirs) = UnixStream::pair().map_err(broken)?;
        let mut child = Command::new("/proc/self/exe")
            .arg0("strongroom")
            .arg(COMMAND)
            .arg(plan.mountpoint()?)
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(broken)?;
        let order = encode_line(&plan.without_secret());
        if let Err(e) = descriptors::send(&stream, &order, None) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(broken(e));
        }
        Ok(Helper { child, stream })
    }

    /// Takes orders from now on, in a thread.
    pub(crate) fn mounter(self) -> Result<Mounter> {
        let (orders, taken) = mpsc::channel();
        let helper = self.child.id();
        std::thread::Builder::new()
            .name("mounter".into())
            .spawn(move || self.take(&taken))
            .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))?;
        Ok(Mounter::Helper(orders, helper))
    }

    fn take(mut self, orders: &mpsc::Receiver<Order>) {
        if let Ok(receiving) = self.stream.try_clone() {
            let mut lines = Lines::new(receiving);
            for (word, outcome) in orders {
                // Nobody may be there any more to hear it.
                let _ = outcome.send(ask(&self.stream, &mut lines, word));
            }
        }
        drop(self.stream);
        let _ = self.child.wait();
    }
}

fn ask(stream: &UnixStream, lines: &mut Lines, word: Word) -> Result<Option<OwnedFd>> {
    let gone = |e: io::Error| {
        Error::failed(format!(
            "the helper that mounts and unmounts has ended ({e}): unmount with `umount` or `fusermount3 -u`"
        ))
    };
    descriptors::send(stream, &encode_line(&word), None).map_err(gone)?;
    let (line, file) = lines.next(ANSWER_LINE_MAX).map_err(gone)?;
    let answer: Answer = serde_json::from_slice(&line).map_err(|e| gone(e.into()))?;
    answer.into_result()?;
    Ok(file.map(OwnedFd::from))
}

impl Mounter {
    /// Mounts; returns the connection to the kernel.
    pub(crate) fn mount(&self, at: &Path, options: &MountOptions) -> Result<OwnedFd> {
        match self {
            Self::Itself => mount::attach(at, options).map_err(|e| refused(&e)),
            Self::Helper(orders, _) => order(orders, Word::Mount)?
                .ok_or_else(|| Error::failed("the helper that mounts sent no connection")),
        }
    }

    /// Unmounts what has this device number; refuses while something is open there, or, `lazily`, takes the mount out of sight.
    pub(crate) fn unmount(&self, at: &Path, device: u64, lazily: bool) -> Result<()> {
        match (self, lazily) {
            (Self::Itself, false) => unmount::unmount(at, device, Detach::Unused),
            (Self::Itself, true) => unmount::unmount(at, device, Detach::Lazily),
            (Self::Helper(orders, _), false) => order(orders, Word::Unmount(device)).map(drop),
            (Self::Helper(orders, _), true) => order(orders, Word::UnmountLazily(device)).map(drop),
        }
    }

    /// What a signal asks for: unmounted if it can be, out of sight otherwise.
    pub(crate) fn unmount_even_if_busy(&self, at: &Path, device: u64) {
        match self.unmount(at, device, false) {
            Ok(()) => {}
            Err(e) if e.exit() == Exit::NotMounted => tracing::warn!(
                "{e} any more: it was taken out of sight, and the process ends when what is open in it is closed"
            ),
            Err(e) => {
                tracing::warn!("{e}; unmounting lazily");
                if let Err(e) = self.unmount(at, device, true) {
                    tracing::error!("{e}");
                }
            }
        }
    }

    /// The mount for requests at the control socket.
    pub(crate) fn for_requests(&self, plan: &Plan) -> Mount {
        Mount {
            confined: matches!(self, Self::Helper(..)),
            snapshot: plan.snapshot.clone(),
            snapshots: plan.snapshots_name(),
        }
    }
}

/// For the mount's own threads.
impl mount::Attachment for Mounter {
    fn detach(&self, at: &Path, device: u64) -> std::result::Result<(), MountError> {
        self.unmount(at, device, false).map_err(|e| match e.exit() {
            Exit::Busy => MountError::Busy(at.to_owned()),
            _ => MountError::Unmount {
                path: at.to_owned(),
                reason: e.to_string(),
            },
        })
    }

    fn write_back(&self, at: &Path, device: u64) {
        match self {
            Self::Itself => drop(mount::write_back(at, device)),
            Self::Helper(orders, _) => drop(order(orders, Word::WriteBack(device))),
        }
    }

    fn thread(&self) -> Option<u32> {
        match self {
            Self::Itself => None,
            Self::Helper(_, process) => Some(*process),
        }
    }
}

fn order(orders: &mpsc::Sender<Order>, word: Word) -> Result<Option<OwnedFd>> {
    let ended = || Error::failed("the thread that mounts and unmounts has ended");
    let (outcome, heard) = mpsc::channel();
    orders.send((word, outcome)).map_err(|_| ended())?;
    heard.recv().map_err(|_| ended())?
}

/// A refusal to mount, with its exit code.
pub(crate) fn refused(error: &MountError) -> Error {
    let exit = match error {
        MountError::Busy(_) => Exit::Busy,
        _ => Exit::CannotMount,
    };
    Error::said(exit, error.to_string())
}

/// Whether we were called to be the helper.
pub(crate) fn is_helper(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|word| word == COMMAND)
}

/// Is the helper until the serving process ends.
pub(crate) fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => Exit::Failed.into(),
    }
}

fn serve() -> Result<()> {
    let broken = |e: io::Error| Error::failed(e.to_string());
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // A handler that does nothing of note.
        signal_hook::flag::register(signal, Arc::default()).map_err(broken)?;
    }
    let stream = io::stdin().as_fd().try_clone_to_owned().map_err(broken)?;
    let stream = UnixStream::from(stream);
    let mut lines = Lines::new(stream.try_clone().map_err(broken)?);
    let (plan, _) = lines.next(ANSWER_LINE_MAX).map_err(broken)?;
    let plan: Plan = serde_json::from_slice(&plan).map_err(|e| broken(e.into()))?;
    let (name, at) = (plan.room()?, plan.mountpoint()?);
    let options = plan.mount_options(&name);
    // Ends with the other side.
    while let Ok((word, _)) = lines.next(100) {
        let word = serde_json::from_slice(&word).map_err(|e| broken(e.into()))?;
        let done = match word {
            Word::Mount => Mounter::Itself.mount(&at, &options).map(Some),
            Word::Unmount(device) => unmount::unmount(&at, device, Detach::Unused).map(|()| None),
            Word::UnmountLazily(device) => {
                unmount::unmount(&at, device, Detach::Lazily).map(|()| None)
            }
            Word::WriteBack(device) => {
                // What the kernel could not do by now it does by itself later.
                let _ = mount::write_back(&at, device);
                Ok(None)
            }
        };
        let (answer, connection) = match done {
            Ok(connection) => (Answer::Done(Reply::Nothing), connection),
            Err(e) => (Answer::from(&e), None),
        };
        let connection = connection.as_ref().map(AsFd::as_fd);
        descriptors::send(&stream, &encode_line(&answer), connection).map_err(broken)?;
    }
    Ok(())
}
