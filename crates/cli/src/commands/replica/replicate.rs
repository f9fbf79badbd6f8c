//! `strongroom replicate`: brings a replica up to date, whatever it has.
//!
//! It keeps a snapshot in common with each target, under a name of its own. To a retention policy that is a snapshot made by hand: were
//! it deleted, everything would have to be sent again.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use room::{Keep, MomentId, ReplicaStatus, ResumeToken, SendRequest, SnapshotPolicy, Timestamp};
use serde_json::json;

use super::must_not_be_remote;
use super::target::Target;
use crate::access::{Intent, OpenArgs};
use crate::args::Global;
use crate::blamed::BlamedWriter;
use crate::commands::snapshot::Reached;
use crate::control::client::unexpected;
use crate::control::{Reply, Request, SentReply};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::limit::Limited;
use crate::output;
use crate::place::room_argument;
use crate::progress::Bar;
use crate::proxy::room_name;

/// Bring a replica of a room up to date: here, on another host or in a bucket, which need no key
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first time everything is sent, later what changed. An interrupted transfer goes on.\n\nExamples:\n  strongroom replicate work.strongroom /media/usb/work\n  strongroom replicate work.strongroom ssh://backup/srv/work\n  strongroom replicate work.strongroom s3://backups/work --keep 2d --keep-daily 30 --keep-weekly 52"
)]
pub(crate) struct Args {
    /// The room's directory
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// The replica: a directory, ssh://HOST/DIRECTORY or s3://BUCKET/PREFIX
    target: PathBuf,
    /// What starts strongroom on the other host
    #[arg(long, value_name = "COMMAND", default_value = "strongroom")]
    remote_command: String,
    /// Send at most so many bytes a second, as 500KiB or 2MiB
    #[arg(long, value_name = "RATE", value_parser = crate::size::bytes)]
    limit: Option<u64>,
    /// Keep snapshots there that the room has deleted, until they are so old, as 30d, 12w or 1y [default: delete them there too]
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    keep: Option<Duration>,
    #[command(flatten)]
    periods: Periods,
    /// With the key, which a mounted room needs then too: apply there what was sent, and free what is no longer needed
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    open: OpenArgs,
}

/// Of which periods the newest snapshot stays.
#[derive(Debug, clap::Args)]
struct Periods {
    /// Keep there the newest snapshot of each of the last N hours that have one, although the room has deleted it
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_hourly: u32,
    /// The same for days in UTC
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_daily: u32,
    /// The same for weeks from Monday in UTC
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_weekly: u32,
}

impl Periods {
    /// `None`: none of them keeps one.
    fn policy(&self) -> Option<SnapshotPolicy> {
        let policy = SnapshotPolicy {
            hourly: self.keep_hourly,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
            min_free_percent: 0,
        };
        policy.check().is_ok().then_some(policy)
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    must_not_be_remote(&args.room)?;
    let target = Target::open(&args.target, &args.remote_command)?;
    if args.apply {
        target.files()?;
    }
    // Before the room is opened: a host that cannot be reached needs no passphrase.
    let status = target.status()?;
    let (access, given) = match args.apply {
        false => (Reached::find(&args.room, &args.open, Intent::Change)?, None),
        true => {
            let (access, given) = Reached::find_with_key(&args.room, &args.open, Intent::Change)?;
            (access, Some(given))
        }
    };
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
    if let Some(given) = &given {
        target.apply(given, args.open.options(Intent::Change))?;
    }
    let Done { request, sent, .. } = done;
    output::done(
        global,
        json!({
            "snapshot": request.to,
            "since": request.since,
            "moment": sent.moment,
            "sent": sent.sent,
            "data": sent.data,
        }),
        format!(
            "Replicated {} to {}: {} sent.",
            room_name(&args.room).display(),
            target.name().display(),
            output::size(sent.sent)
        ),
    );
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
    access: &Reached,
    global: &Global,
) -> Result<Done> {
    let source = Source(access);
    let since = match &status.moment {
        None => None,
        Some(moment) => match source.snapshot_of(moment)? {
            Some(name) => Some(name),
            None => return Err(source.without(moment, status, target)?),
        },
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
        keep: Keep {
            since: args.keep.map(before_now),
            periods: args.periods.policy(),
        },
        scratch: None,
    };
    let sent = match transfer(access, args, target, &request, global) {
        // What was sent first has moved since.
        Ok(None) => {
            request.resume = None;
            transfer(access, args, target, &request, global)
        }
        other => other,
    };
    if let Err(e) = &sent
        && !was_interrupted
        && e.exit() != Exit::Interrupted
    {
        source.discard(&request.to, target);
    }
    let sent = sent?.ok_or_else(unexpected)?;
    for name in source.snapshots()? {
        if is_superseded(&name, &request.to, target) {
            source.delete(name)?;
        }
    }
    Ok(Done {
        request,
        sent,
        was_interrupted,
    })
}

/// Whether a snapshot is in common with a target that now has `to`, and no longer needed for that. A later one is of a run that has begun
/// since.
fn is_superseded(name: &str, to: &str, target: &Target) -> bool {
    let prefix = target.prefix();
    let number = |name: &str| name.strip_prefix(&prefix)?.parse::<u64>().ok();
    match (number(name), number(to)) {
        (Some(other), Some(own)) => other < own,
        (None, Some(_)) => name.starts_with(&target.earlier_prefix()),
        (_, None) => false,
    }
}

/// So long ago.
fn before_now(age: Duration) -> Timestamp {
    let now = room::now();
    Timestamp {
        secs: now.secs.saturating_sub_unsigned(age.as_secs()),
        ..now
    }
}

/// The room that is replicated, mounted or not.
struct Source<'a>(&'a Reached);

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

    /// Why nothing can be sent that follows the moment of a replica: the room does not have it any more.
    fn without(&self, moment: &MomentId, status: &ReplicaStatus, target: &Target) -> Result<Error> {
        let name = target.name();
        let Reply::Info(info) = self.0.run(&Request::Info {}, &|_, _| true)? else {
            return Err(unexpected());
        };
        if status.epoch.is_some_and(|epoch| epoch != info.key_epoch) {
            return Ok(Error::failed_at(
                &name,
                "has other keys than the room, which was rekeyed: replicate to an empty place, and destroy this replica",
            ));
        }
        // It keeps the one that it brought there last.
        let prefix = target.prefix();
        if self.snapshots()?.iter().any(|n| n.starts_with(&prefix)) {
            return Ok(Error::said(
                Exit::RolledBack,
                format!(
                    "{}: is moment {moment}, which the room no longer has because it was replicated there later: the replica was put back to \
                     an older state, or is another one; if that was you, replicate to an empty place",
                    name.display()
                ),
            ));
        }
        Ok(Error::failed(format!(
            "{}: none of the room's snapshots is its moment {moment}: replicate to an empty place",
            name.display()
        )))
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

    fn delete(&self, name: String) -> Result<()> {
        let delete = Request::DeleteSnapshot { name };
        self.0.run(&delete, &|_, _| true).map(drop)
    }

    /// Deletes the snapshot of a run that failed, if the target has nothing of it: no later run would, as long as they fail.
    fn discard(&self, name: &str, target: &Target) {
        let is_known = || -> Result<bool> {
            let status = target.status()?;
            let unfinished = status.unfinished.map(|unfinished| unfinished.to);
            for moment in status.moment.into_iter().chain(unfinished) {
                if self.snapshot_of(&moment)?.as_deref() == Some(name) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let discarded = is_known().and_then(|known| match known {
            true => Ok(()),
            false => self.delete(name.to_owned()),
        });
        if let Err(e) = discarded {
            tracing::info!("the snapshot {name} of a run that failed stays: {e}");
        }
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
    access: &Reached,
    args: &Args,
    target: &Target,
    request: &SendRequest,
    global: &Global,
) -> Result<Option<SentReply>> {
    let bar = Bar::start("replicating", global);
    let progress = |done, total| bar.report(done, total);
    let send = |out: &mut dyn Write| {
        let mut out = BlamedWriter::new(out);
        let sent = access.send(request, &mut Limited::new(&mut out, args.limit), &progress);
        out.end(sent, &target.name())
    };
    let done = target.receive(&args.open.options(Intent::Change), send);
    bar.end();
    done
}
