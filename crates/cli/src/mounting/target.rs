//! A mounted file system that a command ends: named by its mountpoint or its room, and ended together with its process.
//!
//! Invariant: when ending succeeds, everything is durable, and the process that had the keys is gone.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use mount::Detach;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::control::Request;
use crate::control::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounts::{self, Mount};
use crate::place::is_room;
use crate::unmount;

/// How long the serving process may take to end after it has closed the room.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// How the process that serves a mount learns that it shall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The kernel says that the mount is gone; the process closes the room and answers.
    ByTheKernel,
    /// It was killed, after everything was synced, and does not answer.
    Killed,
}

/// A mount, and the process that serves it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) mount: Mount,
    /// `None`: it does not answer, or it serves a shared file system, which has no control socket.
    client: Option<Client>,
}

impl Target {
    /// The mount that an argument means: a mountpoint, or the directory of a mounted room.
    pub(crate) fn find(argument: &Path) -> Result<Target> {
        let path = match mounts::without_touching(argument) {
            Ok(path) => path,
            Err(e) => {
                return Err(Error::said(
                    Exit::NotMounted,
                    format!("{}: {e}", argument.display()),
                ));
            }
        };
        let mount = mounts::strongroom_at(&path).or_else(|| {
            // Through a symbolic link, which a dead mount's last name is not.
            path.canonicalize()
                .ok()
                .and_then(|path| mounts::strongroom_at(&path))
        });
        if let Some(mount) = mount {
            return Ok(Target::of(mount));
        }
        if is_room(argument) {
            if let Some(client) = Client::find(argument)? {
                let mount = client
                    .mount()
                    .ok_or_else(|| super::ending::no_mount(&client))?;
                let client = Some(client);
                return Ok(Target { mount, client });
            }
            // What a process that was killed left.
            let dead = mounts::own()
                .into_iter()
                .find(|mount| mounts::is_of(mount, argument));
            return dead.map(Target::of).ok_or_else(|| {
                Error::said_at(Exit::NotMounted, argument, "this room is not mounted")
            });
        }
        Err(unmount::not_mounted(argument))
    }

    /// Every mount of this user.
    pub(crate) fn all() -> Vec<Target> {
        mounts::own().into_iter().map(Target::of).collect()
    }

    fn of(mount: Mount) -> Target {
        let client = Client::find(&mount.source)
            .ok()
            .flatten()
            .filter(|client| client.mountpoint == mount.mountpoint);
        Target { mount, client }
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mount.mountpoint
    }

    /// Makes everything durable that programs wrote before.
    pub(crate) fn sync(&self) -> Result<()> {
        // A mount whose process has died has nothing that could be written.
        let _ = mount::write_back(self.mountpoint(), self.mount.device);
        self.sync_room()
    }

    /// Makes everything durable that has reached the serving process.
    pub(crate) fn sync_room(&self) -> Result<()> {
        match &self.client {
            Some(client) => client.run(&Request::Sync {}, &|_, _| true).map(drop),
            None => Ok(()),
        }
    }

    /// The mount's root directory, unless something else is mounted over it.
    fn root(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.mountpoint(), flags, Mode::empty()).ok()?;
        let device = rustix::fs::fstat(&root).ok()?.st_dev;
        (device == self.mount.device).then_some(root)
    }

    fn unmount_now(&self, how: Detach) -> Result<()> {
        unmount::unmount(self.mountpoint(), self.mount.device, how)
    }

    /// Unmounts; refuses while something is open there.
    pub(crate) fn unmount(&self) -> Result<Ending> {
        self.unmount_now(Detach::Unused)?;
        Ok(Ending::ByTheKernel)
    }

    /// Takes it out of sight. It ends when it is no longer in use.
    pub(crate) fn detach(&self) -> Result<()> {
        self.sync_room()?;
        self.unmount_now(Detach::Lazily)?;
        if let Some(client) = &self.client
            && mount::is_out_of_sight(self.mount.device)
        {
            // Commands then do not wait for its end. It may have ended.
            let _ = client.run(&Request::Detached {}, &|_, _| true);
        }
        Ok(())
    }

    /// Unmounts by `unmount`, and waits until the room is closed and its process has ended.
    pub(crate) fn end(&self, unmount: impl FnOnce(&Target) -> Result<Ending>) -> Result<()> {
        let Some(client) = &self.client else {
            // Its process ends when everything is durable, or its server did not answer for as long as the mount allows.
            let process = self.process();
            unmount(self)?;
            return process.map_or(Ok(()), |process| wait_for(&process, None));
        };
        // Asked and heard before, so that the answer to how closing went cannot be missed.
        let mut waiting = client.start(&Request::AwaitClose {})?;
        waiting.accepted()?;
        let process = pidfd(client.pid);
        if unmount(self)? == Ending::ByTheKernel {
            waiting.finish(&|_, _| true)?;
        }
        process.map_or(Ok(()), |process| wait_for(&process, Some(END_TIMEOUT)))
    }

    /// Removes the mount although it is in use. Programs that use it get errors: from their next call that reaches the process that
    /// served it, for data in the kernel's cache from `fsync` or `close`.
    pub(crate) fn cut_off(&self) -> Result<Ending> {
        if rustix::process::geteuid().is_root() {
            self.unmount_now(Detach::ByForce)?;
            return Ok(Ending::ByTheKernel);
        }
        let process = match &self.client {
            Some(client) => pidfd(client.pid),
            None => self.process(),
        };
        let root = self.root();
        self.unmount_now(Detach::Lazily)?;
        // What programs wrote meanwhile; from here on no program can open anything.
        if let Some(root) = root {
            let _ = rustix::fs::syncfs(&root);
        }
        if abort_connection(self.mount.device) {
            return Ok(Ending::ByTheKernel);
        }
        // Without FUSE's control file system only the end of the process ends the connection.
        self.sync_room()?;
        let name = self.mountpoint().display();
        let Some(process) = process else {
            return Err(Error::said(
                Exit::Busy,
                format!(
                    "{name}: unmounted, but its process was not found: it has the keys until the last file is closed"
                ),
            ));
        };
        rustix::process::pidfd_send_signal(&process, rustix::process::Signal::KILL)
            .map_err(|e| Error::failed(format!("{name}: its process cannot be ended: {e}")))?;
        Ok(Ending::Killed)
    }

    fn process(&self) -> Option<OwnedFd> {
        mounts::process_of(self.mountpoint()).and_then(pidfd)
    }
}

/// Ends the connection of a FUSE device through its control file system; `false`: it cannot be reached.
fn abort_connection(device: u64) -> bool {
    let connection = rustix::fs::minor(device);
    let path = format!("/sys/fs/fuse/connections/{connection}/abort");
    let file = File::options().write(true).open(path);
    file.is_ok_and(|file| rustix::io::write(&file, b"1").is_ok())
}

/// A descriptor of the process that stays right when its number is given to another.
pub(crate) fn pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn wait_for(process: &OwnedFd, limit: Option<Duration>) -> Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let limit = limit.map(|limit| Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: 0,
    });
    match poll(&mut fds, limit.as_ref()) {
        Ok(0) => Err(Error::failed(
            "the room is committed and closed, but the process that served it has not ended yet",
        )),
        _ => Ok(()),
    }
}
