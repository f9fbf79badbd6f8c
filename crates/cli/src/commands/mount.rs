//! `strongroom mount`: makes the files of a room, or of a shared file system, appear in a directory.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::access::OpenArgs;
use crate::args::Global;
use crate::error::Result;
use crate::mounting::launch;
use crate::mounting::options::{Options, ShownSnapshots, duration, snapshots_name};
use crate::output;

/// Mount a room, or a shared file system, on an empty directory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory, or strongroom://HOST[:PORT]/ of a metadata server (with --identity FILE made by `user add`)
    room: PathBuf,
    /// Where its files shall appear: an empty directory
    mountpoint: PathBuf,
    /// Stay here and serve until unmounted or Ctrl-C
    #[arg(short, long)]
    foreground: bool,
    /// Refuse every change
    #[arg(short, long, visible_alias = "ro")]
    read_only: bool,
    /// With --read-only, of a room in a bucket: show what its writer on another machine saves, seconds later
    #[arg(long)]
    follow: bool,
    /// Mount this snapshot of the room, read-only, in the place of the room itself
    #[arg(long, value_name = "NAME")]
    snapshot: Option<String>,
    /// Let other users in, by the files' permissions (ordinary users need user_allow_other in /etc/fuse.conf)
    #[arg(long)]
    allow_other: bool,
    /// The directory of snapshots, in each directory: hidden (no listing shows it), show (the listing of the top directory does), off
    #[arg(long, value_enum, value_name = "MODE", hide_possible_values = true)]
    snapshots: Option<ShownSnapshots>,
    /// The name of the directory of snapshots [default: .snapshots]
    #[arg(long, value_name = "NAME", value_parser = snapshots_name)]
    snapshots_name: Option<String>,
    /// Unmount when nothing was asked for this long and nothing is open: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<Duration>,
    /// How long a call waits for a metadata server or disk that does not answer, then fails: 90s unless said
    // words.py: the old name.
    #[arg(long = "timeout", alias = "patience", value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Where the background process writes what it has to say [default: NAME.log in the user's state directory]
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,
    /// Mount options as in fstab: ro, follow, allow_other, suid, dev, noexec, noatime, strictatime, nodiratime, lazytime, sync, dirsync, passphrase-file=FILE, state-dir=DIR, ...
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let mut options = Options {
        credential: args.open.credential,
        read_only: args.read_only,
        follow: args.follow,
        snapshot: args.snapshot,
        allow_other: args.allow_other.then_some(true),
        snapshots: args.snapshots,
        snapshots_name: args.snapshots_name,
        idle_timeout: args.idle_timeout,
        timeout: args.timeout,
        accept_rollback: args.open.accept_rollback,
        state_dir: args.open.state_dir,
        log: args.log,
        ..Options::default()
    };
    for list in &args.options {
        options.add(list, false)?;
    }
    launch::mount(
        &args.room,
        &args.mountpoint,
        &options,
        args.foreground,
        global,
    )?;
    if global.json && !args.foreground {
        output::json_line(&json!({
            "room": args.room.to_string_lossy(),
            "mountpoint": args.mountpoint.to_string_lossy(),
        }));
    }
    Ok(())
}
