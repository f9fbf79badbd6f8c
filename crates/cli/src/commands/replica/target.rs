//! Where `replicate` brings a room: to files that this process writes, or to `strongroom receive` on another host.
//!
//! It deliberately does not know what is sent, or which room it is of.

use std::ffi::OsStr;
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use room::{MomentId, OpenOptions, ReplicaStatus};
use serde::Deserialize;

use super::files::Files;
use crate::control::SentReply;
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::fault::Fault;

/// Where a replica is.
pub(super) enum Target {
    Here(Files),
    Ssh {
        host: String,
        dir: String,
        command: String,
    },
}

/// What `receive --status --json` says.
#[derive(Deserialize)]
struct RemoteStatus {
    moment: Option<String>,
    /// Versions before this one do not say it.
    epoch: Option<u32>,
    unfinished: Option<RemoteUnfinished>,
}

#[derive(Deserialize)]
struct RemoteUnfinished {
    since: Option<String>,
    to: String,
    token: String,
}

fn prefix(name: &[u8]) -> String {
    let digest = blake3::hash(name).to_hex();
    format!("replicate-{}-", &digest[..8])
}

/// A word as a shell takes it.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Target {
    /// Finds out what a word of the command line means, and opens what this process writes itself.
    pub(super) fn open(target: &Path, remote_command: &str) -> Result<Target> {
        let Some(rest) = target.to_str().and_then(|t| t.strip_prefix("ssh://")) else {
            let mut parts = target.as_os_str().as_bytes().windows(3);
            if parts.any(|part| part == b"://") {
                return Err(Error::usage_at(
                    target,
                    "a replica is in a directory, at ssh://HOST/DIRECTORY or in s3://BUCKET/PREFIX",
                ));
            }
            let dir = std::path::absolute(target).map_err(|e| Error::host(target, e))?;
            // Without a slash at its end, which would make another name of it.
            let dir: PathBuf = dir.components().collect();
            return Ok(Target::Here(Files::open_or_create(&dir)?));
        };
        match rest.trim_end_matches('/').split_once('/') {
            Some((host, dir)) if !host.is_empty() && !host.starts_with('-') && !dir.is_empty() => {
                Ok(Target::Ssh {
                    host: host.to_owned(),
                    dir: format!("/{dir}"),
                    command: remote_command.to_owned(),
                })
            }
            _ => Err(Error::usage(
                "name a host and a directory: ssh://HOST/DIRECTORY",
            )),
        }
    }

    /// What the user calls it.
    pub(super) fn name(&self) -> PathBuf {
        match self {
            Target::Here(files) => files.name(),
            Target::Ssh { host, dir, .. } => format!("ssh://{host}{dir}").into(),
        }
    }

    /// What the names of its snapshots begin with.
    pub(super) fn prefix(&self) -> String {
        prefix(self.name().as_os_str().as_bytes())
    }

    /// What they began with before this version where a slash was typed behind the place.
    pub(super) fn earlier_prefix(&self) -> String {
        prefix(&[self.name().as_os_str().as_bytes(), b"/"].concat())
    }

    /// What is there.
    pub(super) fn status(&self) -> Result<ReplicaStatus> {
        match self {
            Target::Here(files) => files.status(),
            Target::Ssh { host, .. } => {
                let mut child = self.start(&["--status", "--json"], Stdio::null())?;
                let mut text = String::new();
                let read = child.stdout.take().map_or(Ok(0), |mut out| {
                    use std::io::Read;
                    Read::take(&mut out, 64 << 10).read_to_string(&mut text)
                });
                let ended = child.wait().map_err(|e| ssh(host, &e))?;
                if !ended.success() || read.is_err() {
                    return Err(Error::failed(format!(
                        "{host}: `strongroom receive --status` failed there"
                    )));
                }
                parse_status(&text).ok_or_else(|| {
                    Error::failed(format!("{host}: its answer cannot be understood: {text}"))
                })
            }
        }
    }

    /// Receives the stream that `send` writes; `None` where it wrote none.
    pub(super) fn receive(
        &self,
        options: &OpenOptions,
        send: impl FnOnce(&mut dyn Write) -> Result<Option<SentReply>>,
    ) -> Result<Option<SentReply>> {
        let Target::Ssh { host, .. } = self else {
            return self.receive_here(options, send);
        };
        let mut child = self.start(&["--quiet"], Stdio::piped())?;
        let sent = match child.stdin.take() {
            Some(input) => send(&mut BufWriter::with_capacity(1 << 20, input)),
            None => Err(Error::failed("ssh takes no input")),
        };
        let ended = child.wait().map_err(|e| ssh(host, &e))?;
        match (sent, ended.success()) {
            // The stream never began.
            (Ok(None), _) => Ok(None),
            (Ok(report), true) => Ok(report),
            (Err(e), false) if !is_broken_pipe(&e) => Err(e),
            // The other side says why on standard error.
            (_, false) => Err(Error::failed(format!(
                "{host}: the stream was not received"
            ))),
            (Err(e), true) => Err(e),
        }
    }

    fn receive_here(
        &self,
        options: &OpenOptions,
        send: impl FnOnce(&mut dyn Write) -> Result<Option<SentReply>>,
    ) -> Result<Option<SentReply>> {
        let files = self.files()?;
        let (read, write) = std::io::pipe().map_err(|e| Error::host(&files.name(), e))?;
        let (sent, received) = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let mut from = BufReader::with_capacity(1 << 20, read);
                files.receive(&mut from, options, &|_, _| true)
            });
            let sent = send(&mut BufWriter::with_capacity(1 << 20, write));
            (sent, receiver.join())
        });
        let received = received.map_err(|_| Error::failed("the receiver failed"))?;
        match (sent, received) {
            // Nobody took any more: the receiver knows why.
            (Err(sent), Err(e)) if is_broken_pipe(&sent) => Err(e),
            // Of a stream that ended early, or never began, the receiver knows only that.
            (sent @ (Err(_) | Ok(None)), _) => sent,
            (_, Err(e)) => Err(e),
            (sent, Ok(_)) => sent,
        }
    }

    /// Applies there what was received.
    pub(super) fn apply(&self, given: &Given, options: OpenOptions) -> Result<()> {
        self.files()?.apply(given, options)
    }

    /// The files that this process writes.
    pub(super) fn files(&self) -> Result<&Files> {
        match self {
            Target::Here(files) => Ok(files),
            Target::Ssh { dir, .. } => Err(Error::usage(format!(
                "{}: another host has no key to apply anything with; where it may have one, run there: strongroom receive {dir} --apply",
                self.name().display()
            ))),
        }
    }

    fn start(&self, options: &[&str], input: Stdio) -> Result<Child> {
        let Target::Ssh { host, dir, command } = self else {
            return Err(Error::failed("a directory needs no other process"));
        };
        let mut line = format!("{command} receive {}", shell_word(dir));
        for option in options {
            line = format!("{line} {option}");
        }
        Command::new("ssh")
            .args([OsStr::new("--"), OsStr::new(host), OsStr::new(&line)])
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| ssh(host, &e))
    }
}

fn ssh(host: &str, error: &std::io::Error) -> Error {
    Error::failed(format!("ssh {host}: {error}"))
}

fn parse_status(text: &str) -> Option<ReplicaStatus> {
    let status: RemoteStatus = serde_json::from_str(text.lines().last()?).ok()?;
    let moment = |text: Option<String>| -> Option<Option<MomentId>> {
        text.map(|text| text.parse().ok())
            .map_or(Some(None), |m| m.map(Some))
    };
    let unfinished = match status.unfinished {
        None => None,
        Some(u) => Some(room::Unfinished {
            since: moment(u.since)?,
            to: u.to.parse().ok()?,
            token: u.token.parse().ok()?,
        }),
    };
    Some(ReplicaStatus {
        moment: moment(status.moment)?,
        epoch: status.epoch,
        unfinished,
    })
}

fn is_broken_pipe(error: &Error) -> bool {
    match error {
        Error::Room {
            source: room::Error::Io(e),
            ..
        }
        | Error::At {
            fault: Fault::Host(e),
            ..
        } => e.kind() == ErrorKind::BrokenPipe,
        _ => false,
    }
}
