//! `strongroom volume attach` and `detach`: a volume as a block device of this machine, through the kernel's NBD client.
//!
//! The process serves the device until it is detached or asked to stop: what the kernel reads and writes comes through it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nbd::{Config, Export, Listen, Server};
use serde_json::json;

use crate::args::Global;
use crate::commands::serve::target::{Rooms, Target, TargetArgs};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;

/// How often it is looked whether the kernel still uses the device.
const LOOK: Duration = Duration::from_millis(200);
/// How long what runs may take when it ends.
const GRACE: Duration = Duration::from_secs(20);
/// How long the last flush may take.
const FLUSH_MAX: Duration = Duration::from_secs(60);
/// How long the kernel may take to take up a device.
const TAKE_UP_MAX: Duration = Duration::from_secs(30);
/// Where distributions put it, beside what PATH has.
const SBIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Make a volume, an image or a file of a room a block device (/dev/nbdN), until detached or stopped
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An image or block device, which is opened where it is an encrypted volume, or ROOM:/path
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// The device to use; without: the first that is free
    #[arg(long, value_name = "/dev/nbdN")]
    device: Option<PathBuf>,
    /// Connections between kernel and server, each served by threads of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    #[command(flatten)]
    what: TargetArgs,
}

/// Take a block device of `volume attach` away; what was written is made durable first
#[derive(Debug, clap::Args)]
pub(crate) struct DetachArgs {
    /// The device
    #[arg(value_name = "/dev/nbdN")]
    device: PathBuf,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    // Before a passphrase is asked for in vain.
    let client = client()?;
    let device = match &args.device {
        Some(device) => device.clone(),
        None => free_device()?,
    };
    let mut rooms = Rooms::default();
    let target = Target::open(&args.target, &args.what, &mut rooms)?;
    let stop = service::Stop::on_signals(GRACE + FLUSH_MAX)
        .map_err(|e| Error::failed(format!("signals cannot be received: {e}")))?;
    let socket = Socket::new()?;
    let export = Export {
        name: String::new(),
        description: String::new(),
        device: target.device.clone(),
        read_only: args.what.read_only,
    };
    let config = Config {
        listen: Listen::Unix(socket.path()),
        ..Config::default()
    };
    let mut server =
        Server::start(config, vec![export]).map_err(|e| Error::failed(e.to_string()))?;
    let connected = call(
        Command::new(&client)
            .arg("-unix")
            .arg(socket.path())
            .arg(&device)
            .args(options(args, target.sector_size)),
    );
    let mut attached = connected.and_then(|()| {
        let deadline = std::time::Instant::now() + TAKE_UP_MAX;
        while server.metrics().connections == 0 {
            if std::time::Instant::now() >= deadline {
                return Err(Error::failed_at(&device, "the kernel did not take it up"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    });
    if attached.is_ok() {
        if global.json {
            output::json_line(
                &json!({"device": device, "target": target.what, "size_bytes": target.device.len()}),
            );
        } else {
            output::line(format!("{} is {}", device.display(), target.what));
        }
        while !stop.wait_for(LOOK) && server.metrics().connections > 0 {}
        if server.metrics().connections > 0 {
            // The kernel writes back what it has before it lets go.
            attached = call(Command::new(&client).arg("-d").arg(&device));
        }
    }
    let stopped = server.stop(GRACE);
    drop(server);
    drop(target);
    let closed = rooms.close();
    attached?;
    stopped.map_err(|e| Error::failed(format!("the last flush: {e}")))?;
    closed
}

/// The other arguments of nbd-client. Blocks of another size would cut the end off, and hide a partition table that counts in sectors.
fn options(args: &Args, sector_size: usize) -> Vec<String> {
    let mut options = vec![
        "-b".to_owned(),
        sector_size.to_string(),
        "-C".to_owned(),
        args.connections.to_string(),
    ];
    if args.what.read_only {
        options.push("-R".to_owned());
    }
    options
}

pub(crate) fn detach(args: &DetachArgs) -> Result<()> {
    let client = client()?;
    // The process that serves it ends by itself.
    call(Command::new(client).arg("-d").arg(&args.device))
}

/// A private directory with the server's socket, removed when dropped.
struct Socket(PathBuf);

impl Socket {
    fn new() -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let dir = PathBuf::from(format!("/run/strongroom-attach.{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|e| Error::host(&dir, e))?;
        Ok(Self(dir))
    }

    fn path(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nothing but our own socket was ever in it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program that hands a connection to the kernel; where the kernel could take it.
fn client() -> Result<PathBuf> {
    let lacking = |what: &str| {
        Err(Error::said(
            Exit::CannotMount,
            format!(
                "{what}. Without it: `strongroom serve nbd` gives the volume to qemu, nbdcopy, nbdfuse and other programs that speak NBD, \
                 and `strongroom volume export` copies its contents"
            ),
        ))
    };
    if !Path::new("/dev/nbd0").exists() {
        return lacking(
            "no block device can be made here: there is no /dev/nbd0; as root, load the kernel's module: modprobe nbd",
        );
    }
    if !rustix::process::geteuid().is_root() {
        return lacking("a block device is made by root alone: become root");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).chain(SBIN.map(PathBuf::from));
    match places.find_map(|dir| Some(dir.join("nbd-client")).filter(|program| program.is_file())) {
        Some(program) => Ok(program),
        None => lacking(
            "no block device can be made here: the program nbd-client is missing; install the package nbd-client",
        ),
    }
}

/// The first device that nobody uses: one that is used has a `pid` (`Documentation/ABI`, block/nbd).
fn free_device() -> Result<PathBuf> {
    let devices = (0..1024).map(|n| {
        (
            PathBuf::from(format!("/dev/nbd{n}")),
            format!("/sys/block/nbd{n}/pid"),
        )
    });
    let mut there = devices.take_while(|(device, _)| device.exists());
    match there.find(|(_, pid)| !Path::new(pid).exists()) {
        Some((device, _)) => Ok(device),
        None => Err(Error::said(
            Exit::Busy,
            "all of /dev/nbd* are in use: detach one, or load the kernel's module with more of them (modprobe nbd nbds_max=64)",
        )),
    }
}

/// Runs nbd-client, whose words are passed on where it fails.
fn call(command: &mut Command) -> Result<()> {
    let done = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::failed(format!("nbd-client: {e}")))?;
    if done.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&done.stderr);
    Err(Error::failed(format!(
        "nbd-client: {}: {}",
        done.status,
        words.trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They had 4096 bytes always: the rest of an image behind them was cut off, and partition tables in it were not found.
    #[test]
    fn the_blocks_of_the_device_are_the_sectors_of_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, vec![1; 4096 + 512]).unwrap();
        let mut args = Args {
            target: path.into_os_string(),
            device: None,
            connections: 2,
            what: TargetArgs::default(),
        };
        let target = Target::open(&args.target, &args.what, &mut Rooms::default()).unwrap();
        assert_eq!(options(&args, target.sector_size), ["-b", "512", "-C", "2"]);
        args.what.read_only = true;
        assert_eq!(options(&args, 4096), ["-b", "4096", "-C", "2", "-R"]);
    }
}
