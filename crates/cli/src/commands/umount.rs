//! `strongroom umount`: takes a mounted room away, and returns when everything is committed and its process has ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use serde_json::json;

use crate::args::Global;
use crate::control::Request;
use crate::control::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounts;
use crate::output;
use crate::place::is_room;
use crate::unmount;

/// How long the serving process may take to end after it has closed the room.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Unmount a room: commits everything, then waits for the serving process to end
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The mountpoint, or the room's directory
    mountpoint: PathBuf,
    /// Take it out of sight even if files are open in it; it ends when they are closed
    #[arg(short, long)]
    lazy: bool,
    /// Not needed; taken so that scripts can pass the same options to every command
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let (mountpoint, client) = find(&args.mountpoint)?;
    if args.lazy {
        if let Some(client) = &client {
            client.run(&Request::Sync {}, &|_, _| true)?;
        }
        unmount::unmount_lazily(&mountpoint)?;
    } else if let Some(client) = client {
        // Asked and heard before, so that the answer to how closing went cannot be missed.
        let mut waiting = client.start(&Request::AwaitClose {})?;
        waiting.accepted()?;
        let ended = pidfd(client.pid);
        unmount::unmount(&mountpoint)?;
        waiting.finish(&|_, _| true)?;
        if let Some(ended) = ended {
            wait_for(&ended)?;
        }
    } else {
        // A shared file system has no control socket: its process ends when everything is durable.
        let ended = mounts::process_of(&mountpoint).and_then(pidfd);
        unmount::unmount(&mountpoint)?;
        if let Some(ended) = ended {
            wait_for(&ended)?;
        }
    }
    if global.json {
        output::json_line(&json!({"unmounted": mountpoint.to_string_lossy()}));
    }
    Ok(())
}

/// Where the room is mounted that the argument means, and the process that serves it if it answers.
fn find(argument: &Path) -> Result<(PathBuf, Option<Client>)> {
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
        let client = Client::find(&mount.source)
            .ok()
            .flatten()
            .filter(|client| client.mountpoint == mount.mountpoint);
        return Ok((mount.mountpoint, client));
    }
    if is_room(argument) {
        if let Some(client) = Client::find(argument)? {
            let mount = client.mount().ok_or_else(|| client.no_mount())?;
            return Ok((mount.mountpoint, Some(client)));
        }
        return Err(Error::said(
            Exit::NotMounted,
            format!("{}: this room is not mounted", argument.display()),
        ));
    }
    Err(unmount::not_mounted(argument))
}

/// A descriptor of the process that stays right when its number is given to another.
fn pidfd(pid: u32) -> Option<std::os::fd::OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn wait_for(process: &std::os::fd::OwnedFd) -> Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: END_TIMEOUT.as_secs() as i64,
        tv_nsec: 0,
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Err(Error::failed(
            "the room is committed and closed, but the process that served it has not ended yet",
        )),
        _ => Ok(()),
    }
}
