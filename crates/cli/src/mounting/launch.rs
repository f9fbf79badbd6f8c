//! Starting the process that serves a mount, in the foreground or beside us, and learning how it went.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mount::{AccessTimes, Synchronous};
use serde::{Deserialize, Serialize};

use super::options::{Options, ShownSnapshots};
use crate::args::Global;
use crate::confinement::Confinement;
use crate::control::{ANSWER_LINE_MAX, Answer, encode_line};
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::{name_from_hex, path_from_hex, path_to_hex};
use crate::place::must_be_room;
use crate::snapshots;

/// Everything the serving process needs to know. Paths are absolute, in hexadecimal: they need not be text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The room's directory, or the name of a shared file system as it was typed.
    pub(crate) room: String,
    /// Host and port of the metadata server of a shared file system.
    pub(crate) server: Option<String>,
    pub(crate) mountpoint: String,
    /// The snapshot to mount in the place of the room.
    pub(crate) snapshot: Option<String>,
    pub(crate) read_only: bool,
    /// Whether a room in a bucket is shown as its writer makes it.
    pub(crate) follow: bool,
    pub(crate) allow_other: Option<bool>,
    pub(crate) suid: Option<bool>,
    pub(crate) dev: Option<bool>,
    pub(crate) exec: Option<bool>,
    #[serde(with = "AccessTimesPlan")]
    pub(crate) access_times: AccessTimes,
    pub(crate) no_directory_access_times: bool,
    pub(crate) lazy_times: bool,
    pub(crate) io_uring: Option<bool>,
    #[serde(with = "SynchronousPlan")]
    pub(crate) synchronous: Synchronous,
    pub(crate) snapshots: ShownSnapshots,
    pub(crate) snapshots_name: Option<String>,
    pub(crate) idle_timeout_s: Option<u64>,
    /// Of a shared file system.
    pub(crate) timeout_s: Option<u64>,
    pub(crate) accept_rollback: bool,
    pub(crate) state_dir: Option<String>,
    pub(crate) log: Option<String>,
    pub(crate) confinement: Confinement,
    pub(crate) credential: Given,
}

/// How a plan carries [`AccessTimes`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "AccessTimes")]
enum AccessTimesPlan {
    Relative,
    Strict,
    Never,
}

/// How a plan carries [`Synchronous`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Synchronous")]
enum SynchronousPlan {
    Off,
    Names,
    All,
}

impl Plan {
    pub(crate) fn room(&self) -> Result<PathBuf> {
        match self.server {
            // The name of a shared file system is the same in every directory.
            Some(_) => name_from_hex(&self.room),
            None => path_from_hex(&self.room),
        }
    }

    pub(crate) fn mountpoint(&self) -> Result<PathBuf> {
        path_from_hex(&self.mountpoint)
    }

    pub(crate) fn state_dir(&self) -> Result<Option<PathBuf>> {
        self.state_dir.as_deref().map(path_from_hex).transpose()
    }

    pub(crate) fn log(&self) -> Result<Option<PathBuf>> {
        self.log.as_deref().map(path_from_hex).transpose()
    }

    /// Whether the process that serves it confines itself. Where an age plugin must be able to start, it does not.
    pub(crate) fn is_confined(&self) -> bool {
        self.confinement != Confinement::Off && !self.credential.uses_plugin()
    }

    /// The same for a process that needs no key.
    pub(crate) fn without_secret(&self) -> Plan {
        let mut plan = self.clone();
        plan.credential = Given::nothing();
        plan
    }

    /// Name of the directory of snapshots, where the mount has one.
    pub(crate) fn snapshots_name(&self) -> Option<PathBuf> {
        let directory = self.snapshot_directory()?;
        Some(OsString::from_vec(directory.name).into())
    }

    /// The directory of snapshots, where the mount has one: a snapshot has none.
    pub(crate) fn snapshot_directory(&self) -> Option<mount::SnapshotDirectory> {
        let usual = mount::SnapshotDirectory::default();
        let name = self.snapshots_name.clone().map(String::into_bytes);
        let is_shown = self.snapshot.is_none() && self.snapshots != ShownSnapshots::Off;
        is_shown.then(|| mount::SnapshotDirectory {
            name: name.unwrap_or(usual.name),
            is_listed: self.snapshots == ShownSnapshots::Show,
        })
    }

    /// Options of the mount of `dir`, or of the shared file system of this name.
    pub(crate) fn mount_options(&self, dir: &Path) -> mount::MountOptions {
        let usual = mount::MountOptions::default();
        mount::MountOptions {
            // While a store does not answer, each request for what is there alone keeps a thread.
            threads: match crate::bucket::is_proxy(dir) {
                true => mount::THREADS_MAX,
                false => usual.threads,
            },
            read_only: self.read_only,
            allow_other: self.allow_other.unwrap_or(usual.allow_other),
            suid: self.suid.unwrap_or(usual.suid),
            dev: self.dev.unwrap_or(usual.dev),
            exec: self.exec.unwrap_or(usual.exec),
            access_times: self.access_times,
            directory_access_times: !self.no_directory_access_times,
            lazy_times: self.lazy_times,
            // Where the process waits for its own mount, it would not end when it is killed in a full room.
            transport: match self.io_uring.unwrap_or(self.is_confined()) {
                true => mount::Transport::IoUring,
                false => mount::Transport::Device,
            },
            synchronous: self.synchronous,
            idle_timeout: self.idle_timeout_s.map(Duration::from_secs),
            name: dir.to_string_lossy().into_owned(),
            ..usual
        }
    }
}

/// Checks what can be checked, reads the credential, and mounts.
pub(crate) fn mount(
    room: &std::path::Path,
    mountpoint: &std::path::Path,
    options: &Options,
    foreground: bool,
    global: &Global,
) -> Result<()> {
    let canonical = |path: &std::path::Path| path.canonicalize().map_err(|e| Error::host(path, e));
    let server = super::remote::address(room)?;
    let source = match server {
        Some(_) => {
            if options.credential.identity.is_none() || options.accept_rollback {
                return Err(Error::usage_at(
                    room,
                    "a shared file system is mounted with --identity FILE, which `strongroom user add` made, and no other \
                     key",
                ));
            }
            if options.access_times == AccessTimes::Strict {
                return Err(Error::usage_at(
                    room,
                    "strictatime: access times of a shared file system do not follow reads; mount it without this option",
                ));
            }
            if let Some(name) = &options.snapshot {
                snapshots::check_name(name)?;
            }
            if options.follow {
                return Err(Error::usage_at(
                    room,
                    "follow: a shared file system shows what others write as it is; mount it without this option",
                ));
            }
            super::check_possible(None, mountpoint)?;
            room.to_owned()
        }
        None => {
            if options.follow {
                check_can_follow(room, options)?;
            }
            if options.timeout.is_some() {
                return Err(Error::usage(
                    "--timeout is for shared file systems: a room on this machine has no server to wait for",
                ));
            }
            must_be_room(room)?;
            if let Some(name) = &options.snapshot {
                snapshots::check_name(name)?;
            }
            not_in_use(room, options.snapshot.as_deref())?;
            super::check_possible(Some(room), mountpoint)?;
            canonical(room)?
        }
    };
    let credential = options.credential.read(&room.display().to_string())?;
    let absolute = |path: &Option<PathBuf>| {
        let path = path.as_deref().map(std::path::absolute).transpose();
        let path = path.map_err(|e| Error::failed(format!("a path of the options: {e}")))?;
        Ok::<_, Error>(path.map(|path| path_to_hex(&path)))
    };
    let plan = Plan {
        room: path_to_hex(&source),
        server,
        mountpoint: path_to_hex(&canonical(mountpoint)?),
        snapshot: options.snapshot.clone(),
        // Nothing of a snapshot can be changed.
        read_only: options.read_only || options.snapshot.is_some(),
        follow: options.follow,
        allow_other: options.allow_other,
        suid: options.suid,
        dev: options.dev,
        exec: options.exec,
        access_times: options.access_times,
        no_directory_access_times: options.no_directory_access_times,
        lazy_times: options.lazy_times,
        io_uring: options.io_uring,
        synchronous: options.synchronous,
        snapshots: options.snapshots.unwrap_or_default(),
        snapshots_name: options.snapshots_name.clone(),
        idle_timeout_s: options.idle_timeout.map(|time| time.as_secs()),
        timeout_s: options.timeout.map(|time| time.as_secs()),
        accept_rollback: options.accept_rollback,
        state_dir: absolute(&options.state_dir)?,
        log: absolute(&options.log)?,
        confinement: options.confinement.unwrap_or(global.confinement),
        credential,
    };
    if foreground {
        super::serve::serve(&plan, &mut super::serve::InForeground)
    } else {
        beside_us(&plan, global)
    }
}

/// Refuses to follow what nobody else writes to, or what does not change.
fn check_can_follow(room: &std::path::Path, options: &Options) -> Result<()> {
    let refuse = |why: &str| Err(Error::usage(format!("{}: follow: {why}", room.display())));
    if !crate::bucket::is_proxy(room) {
        return refuse(
            "only a room in a bucket (s3://BUCKET/PREFIX) is read while another machine writes to it",
        );
    }
    if !options.read_only {
        return refuse("goes with --read-only (-o ro)");
    }
    if options.snapshot.is_some() {
        return refuse("a snapshot does not change; mount it without this option");
    }
    if options.snapshots.is_some() || options.snapshots_name.is_some() {
        return refuse(
            "such a mount shows no directory of snapshots; mount one with --snapshot NAME",
        );
    }
    Ok(())
}

fn not_in_use(room: &std::path::Path, snapshot: Option<&str>) -> Result<()> {
    let Some(client) = super::ending::mounted(room)? else {
        return Ok(());
    };
    if client.mount().is_none() {
        return Err(super::ending::no_mount(&client));
    }
    let hint = match (snapshot, &client.snapshots) {
        (Some(name), Some(snapshots)) => format!(
            "; the snapshot can be read there: {}",
            client.mountpoint.join(snapshots).join(name).display()
        ),
        _ => String::new(),
    };
    Err(Error::said(
        Exit::InUse,
        format!(
            "{}: the room is in use by process {}, which has it mounted at {}{hint}",
            room.display(),
            client.pid,
            client.mountpoint.display()
        ),
    ))
}

/// Starts ourselves again as the serving process. The plan, secret included, goes through its standard input; its standard
/// output brings one answer. Standard error stays the user's until it has answered.
fn beside_us(plan: &Plan, global: &Global) -> Result<()> {
    let broken =
        |e: std::io::Error| Error::failed(format!("the serving process could not be started: {e}"));
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("strongroom")
        .arg("serve-mount")
        .arg(plan.room()?)
        .arg(plan.mountpoint()?);
    for _ in 0..global.verbose {
        command.arg("-v");
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(broken)?;
    if let Some(mut input) = child.stdin.take() {
        // A child that is gone already does not read; how it ended is reported below.
        let _ = input.write_all(&encode_line(plan));
    }
    let mut line = Vec::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output.take(ANSWER_LINE_MAX as u64))
            .read_until(b'\n', &mut line)
            .map_err(broken)?;
    }
    match serde_json::from_slice::<Answer>(&line) {
        Ok(answer) => answer.into_result().map(drop),
        Err(_) => {
            let status = child.wait().map_err(broken)?;
            Err(Error::failed(format!(
                "the serving process ended before the room was mounted ({status})"
            )))
        }
    }
}
