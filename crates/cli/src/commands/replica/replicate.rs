//! `strongroom replicate`: brings a replica up to date, whatever it has.
//!
//! It keeps a snapshot in common with each target, under a name of its own. To a retention policy that is a snapshot made by hand: were
//! it deleted, everything would have to be sent again.

use std::ffi::OsStr;
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use room::{MomentId, ReplicaStatus, ResumeToken, SendRequest};
use serde::Deserialize;
use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request, SentReply};
use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::limit::Limited;
use crate::output;
use crate::place::room_argument;
use crate::progress::Bar;

/// Bring a replica of a room up to date, here or on another host, which needs no key
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first time everything is sent, later what changed. An interrupted transfer goes on.\n\nExamples:\n  strongroom replicate work.strongroom /media/usb/work\n  strongroom replicate work.strongroom ssh://backup/srv/work"
)]
pub(crate) struct Args {
    /// The room's directory
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// The replica: a directory, or ssh://HOST/DIRECTORY
    target: PathBuf,
    /// What starts strongroom on the other host
    #[arg(long, value_name = "COMMAND", default_value = "strongroom")]
    remote_command: String,
    /// Send at most so many bytes a second, as 500KiB or 2MiB
    #[arg(long, value_name = "RATE", value_parser = crate::size::bytes)]
    limit: Option<u64>,
    #[command(flatten)]
    open: OpenArgs,
}

/// Where a replica is.
enum Target {
    Here(PathBuf),
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
    unfinished: Option<RemoteUnfinished>,
}

#[derive(Deserialize)]
struct RemoteUnfinished {
    since: Option<String>,
    to: String,
    token: String,
}

/// A word as a shell takes it.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Target {
    fn parse(args: &Args) -> Result<Target> {
        let Some(rest) = args.target.to_str().and_then(|t| t.strip_prefix("ssh://")) else {
            if args
                .target
                .as_os_str()
                .as_bytes()
                .windows(3)
                .any(|w| w == b"://")
            {
                return Err(Error::usage(format!(
                    "{}: a replica is in a directory, or at ssh://HOST/DIRECTORY",
                    args.target.display()
                )));
            }
            let dir = std::path::absolute(&args.target);
            return Ok(Target::Here(dir.map_err(|e| Error::host(&args.target, e))?));
        };
        match rest.split_once('/') {
            Some((host, dir)) if !host.is_empty() && !host.starts_with('-') && !dir.is_empty() => {
                Ok(Target::Ssh {
                    host: host.to_owned(),
                    dir: format!("/{dir}"),
                    command: args.remote_command.clone(),
                })
            }
            _ => Err(Error::usage(
                "name a host and a directory: ssh://HOST/DIRECTORY",
            )),
        }
    }

    /// What the names of its snapshots begin with.
    fn prefix(&self) -> String {
        let place = match self {
            Target::Here(dir) => dir.as_os_str().as_bytes().to_vec(),
            Target::Ssh { host, dir, .. } => format!("ssh://{host}{dir}").into_bytes(),
        };
        let digest = blake3::hash(&place).to_hex();
        format!("replicate-{}-", &digest[..8])
    }

    fn status(&self) -> Result<ReplicaStatus> {
        match self {
            Target::Here(dir) => ReplicaStatus::of(dir).map_err(|e| Error::room(dir, e)),
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
        unfinished,
    })
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let target = Target::parse(&args)?;
    // Before the room is opened: a host that cannot be reached needs no passphrase.
    let status = target.status()?;
    let access = Access::reach(&args.room, &args.open, Intent::Change)?;
    let mut done = bring(&args, &target, &status, &access, global)?;
    if done.was_interrupted {
        // That led to the moment of its time; and now to the present one.
        let before = done.sent;
        done = bring(&args, &target, &target.status()?, &access, global)?;
        done.sent.sent += before.sent;
        done.sent.data += before.data;
    }
    access.free_deleted()?;
    access.close()?;
    let Done { request, sent, .. } = done;
    if global.json {
        output::json_line(&json!({
            "snapshot": request.to,
            "since": request.since,
            "moment": sent.moment,
            "sent": sent.sent,
            "data": sent.data,
        }));
    } else {
        output::note(
            global,
            format!(
                "Replicated {} to {}: {} sent.",
                args.room.display(),
                args.target.display(),
                output::size(sent.sent)
            ),
        );
    }
    Ok(())
}

/// A transfer that is complete.
struct Done {
    request: SendRequest,
    sent: SentReply,
    /// It went on with one that an earlier run began.
    was_interrupted: bool,
}

/// Completes the transfer that was interrupted, or brings a replica in this state to the present moment.
fn bring(
    args: &Args,
    target: &Target,
    status: &ReplicaStatus,
    access: &Access,
    global: &Global,
) -> Result<Done> {
    let source = Source(access);
    let since = match &status.moment {
        None => None,
        Some(moment) => {
            let name = source.snapshot_of(moment)?;
            Some(name.ok_or_else(|| {
                Error::failed(format!(
                    "{}: none of its snapshots is the moment {moment} of the replica: replicate to an empty directory",
                    args.room.display()
                ))
            })?)
        }
    };
    let (to, resume) = match source.resumable(status)? {
        Some((to, token)) => (to, Some(token)),
        None => (source.create(&target.prefix())?, None),
    };
    let was_interrupted = resume.is_some();
    let mut request = SendRequest {
        to,
        since,
        resume,
        scratch: None,
    };
    let sent = match transfer(access, args, target, &request, global) {
        // What was sent first has moved since.
        Ok(None) => {
            request.resume = None;
            transfer(access, args, target, &request, global)?
        }
        other => other?,
    };
    let sent = sent.ok_or_else(unexpected)?;
    for name in source.snapshots()? {
        if name.starts_with(&target.prefix()) && name != request.to {
            let delete = Request::DeleteSnapshot { name };
            access.run(&delete, &|_, _| true)?;
        }
    }
    Ok(Done {
        request,
        sent,
        was_interrupted,
    })
}

/// The room that is replicated, mounted or not.
struct Source<'a>(&'a Access);

impl Source<'_> {
    fn snapshots(&self) -> Result<Vec<String>> {
        match self.0.run(&Request::Snapshots {}, &|_, _| true)? {
            Reply::Snapshots(all) => Ok(all.snapshots.into_iter().map(|s| s.name).collect()),
            _ => Err(unexpected()),
        }
    }

    fn snapshot_of(&self, moment: &MomentId) -> Result<Option<String>> {
        let moment = moment.to_string();
        let request = Request::SnapshotOfMoment { moment };
        match self.0.run(&request, &|_, _| true)? {
            Reply::SnapshotName(name) => Ok(name),
            _ => Err(unexpected()),
        }
    }

    /// The transfer that was interrupted, if it leads from the replica's moment to a snapshot that there still is.
    fn resumable(&self, status: &ReplicaStatus) -> Result<Option<(String, ResumeToken)>> {
        let Some(unfinished) = status
            .unfinished
            .as_ref()
            .filter(|u| u.since == status.moment)
        else {
            return Ok(None);
        };
        let name = self.snapshot_of(&unfinished.to)?;
        Ok(name.map(|name| (name, unfinished.token)))
    }

    fn create(&self, prefix: &str) -> Result<String> {
        // What programs wrote is in the snapshot.
        self.0.fetch_written();
        let all = self.snapshots()?;
        let numbers = all.iter().filter_map(|name| name.strip_prefix(prefix));
        let last = numbers.filter_map(|n| n.parse::<u64>().ok()).max();
        let name = format!("{prefix}{}", last.unwrap_or(0) + 1);
        let create = Request::CreateSnapshot {
            name: Some(name.clone()),
        };
        self.0.run(&create, &|_, _| true)?;
        Ok(name)
    }
}

fn transfer(
    access: &Access,
    args: &Args,
    target: &Target,
    request: &SendRequest,
    global: &Global,
) -> Result<Option<SentReply>> {
    let bar = Bar::start("replicating", global);
    let progress = |done, total| bar.report(done, total);
    let send = |out: &mut dyn Write| {
        let mut out = Limited::new(out, args.limit);
        let sent = access.send(request, &mut out, &progress)?;
        out.flush().map_err(|e| Error::host(&args.target, e))?;
        Ok(sent)
    };
    let done = match target {
        Target::Here(dir) => here(dir, args, send),
        Target::Ssh { host, .. } => {
            let mut child = target.start(&["--quiet"], Stdio::piped())?;
            let sent = match child.stdin.take() {
                Some(input) => send(&mut BufWriter::with_capacity(1 << 20, input)),
                None => Err(Error::failed("ssh takes no input")),
            };
            let ended = child.wait().map_err(|e| ssh(host, &e))?;
            match (sent, ended.success()) {
                // The stream never began.
                (Ok(None), _) => Ok(None),
                (Ok(report), true) => Ok(report),
                // The other side says why on standard error.
                (Ok(_), false) => Err(Error::failed(format!(
                    "{host}: the stream was not received"
                ))),
                (Err(e), _) => Err(e),
            }
        }
    };
    bar.end();
    done
}

/// Sends to a directory of this host.
fn here(
    dir: &Path,
    args: &Args,
    send: impl FnOnce(&mut dyn Write) -> Result<Option<SentReply>>,
) -> Result<Option<SentReply>> {
    let (read, write) = std::io::pipe().map_err(|e| Error::host(dir, e))?;
    let options = args.open.options(Intent::Change);
    let (sent, received) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut from = BufReader::with_capacity(1 << 20, read);
            room::receive(dir, &mut from, &options, &|_, _| true)
        });
        let sent = send(&mut BufWriter::with_capacity(1 << 20, write));
        (sent, receiver.join())
    });
    let received = received.map_err(|_| Error::failed("the receiver failed"))?;
    match (sent, received) {
        // Nobody took any more: the receiver knows why.
        (Err(sent), Err(e)) if is_broken_pipe(&sent) => Err(Error::room(dir, e)),
        // Of a stream that ended early, or never began, the receiver knows only that.
        (sent @ (Err(_) | Ok(None)), _) => sent,
        (_, Err(e)) => Err(Error::room(dir, e)),
        (sent, Ok(_)) => sent,
    }
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
