//! `strongroom receive`: a replica of a room, from a stream.

use std::fs::{DirBuilder, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use room::ReplicaStatus;
use serde_json::json;

use super::files::{self, Files};
use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::commands::check;
use crate::confinement;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::progress::Bar;
use crate::proxy::room_name;

/// Make a replica of a room from a stream, or bring one up to date; needs no key
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A replica is a room that is read only: `ls`, `cp`, `mount -r` and `check` open it with the key of its source.\n\nExamples:\n  ssh home strongroom send work.strongroom@monday | strongroom receive work\n  strongroom receive work --verify --status"
)]
pub(crate) struct Args {
    /// The replica: a directory or s3://BUCKET/PREFIX, which is new, empty, or a replica
    target: PathBuf,
    /// Read the stream from this file [default: standard input]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// With the key: apply what was received, then open every unit of data
    #[arg(long)]
    verify: bool,
    /// Receive nothing: show the replica's moment, and the token of an interrupted transfer
    #[arg(long, conflicts_with_all = ["from", "promote"])]
    status: bool,
    /// Receive nothing; with the key: apply what was received, and free what is no longer needed
    #[arg(long, conflicts_with_all = ["from", "verify", "promote"])]
    apply: bool,
    /// Receive nothing; with the key: make the replica a room of its own, which can be changed
    #[arg(long, conflicts_with_all = ["from", "verify"])]
    promote: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    if args.status && !args.verify && !args.apply {
        return status(&args.target, global);
    }
    // Before anything is made for it.
    let from = args.from.as_ref().map(|path| {
        let opened = File::open(path);
        opened.map_err(|e| Error::host(path, e))
    });
    let from = from.transpose()?;
    confine(&args, global)?;
    let files = match args.receives() {
        true => Files::open_or_create(&args.target)?,
        false => Files::open(&args.target)?,
    };
    if args.receives() {
        take(&args, from, &files, global)?;
    }
    if args.promote {
        promote(&args, &files, global)?;
    }
    if args.apply {
        apply(&args, &files, global)?;
    }
    if args.verify {
        verify(&args, files, global)?;
    }
    match args.status {
        true => status(&args.target, global),
        false => Ok(()),
    }
}

impl Args {
    /// Whether there is a stream to be read.
    fn receives(&self) -> bool {
        !self.status && !self.promote && !self.apply
    }
}

/// Keeps the replica and the stream.
fn confine(args: &Args, global: &Global) -> Result<()> {
    let target = &args.target;
    if args.receives() && !target.exists() {
        // Its parent cannot be reached afterwards.
        let made = DirBuilder::new().mode(0o700).create(target);
        made.and_then(|()| File::open(confinement::directory(target))?.sync_all())
            .map_err(|e| Error::host(target, e))?;
    }
    let (state, credential) = (args.open.state_dir.as_deref(), &args.open.credential);
    let profile = confinement::of_room_to_open(target, state, credential);
    global
        .confinement
        .enter_for(&profile, "this command", credential)
}

fn take(args: &Args, from: Option<File>, files: &Files, global: &Global) -> Result<()> {
    let mut from: Box<dyn Read> = match from {
        Some(file) => Box::new(file),
        None => Box::new(std::io::stdin().lock()),
    };
    let mut from = BufReader::with_capacity(1 << 20, &mut *from);
    let bar = Bar::start("receiving", global);
    let options = args.open.options(Intent::Change);
    let progress = |done, total| bar.report(done, total);
    let received = files.receive(&mut from, &options, &progress);
    bar.end();
    let report = match received {
        Ok(report) => report,
        Err(e) => {
            if let Ok(ReplicaStatus {
                unfinished: Some(unfinished),
                ..
            }) = files.status()
            {
                output::note(
                    global,
                    format!(
                        "What was received is kept: send the same again with --resume {}",
                        unfinished.token
                    ),
                );
            }
            return Err(e);
        }
    };
    output::done(
        global,
        json!({
            "moment": report.moment.to_string(),
            "bytes": report.bytes,
            "whole": report.whole,
        }),
        format!(
            "Received {}: {} is moment {}.",
            output::size(report.bytes),
            files.name().display(),
            report.moment
        ),
    );
    Ok(())
}

fn apply(args: &Args, files: &Files, global: &Global) -> Result<()> {
    files.apply(&with_key(args)?, args.open.options(Intent::Change))?;
    output::note(
        global,
        format!("{}: what was received is applied.", files.name().display()),
    );
    Ok(())
}

fn promote(args: &Args, files: &Files, global: &Global) -> Result<()> {
    files.promote(&with_key(args)?, args.open.options(Intent::Change))?;
    output::note(
        global,
        format!(
            "{} is a room of its own now; it receives nothing more.",
            files.name().display()
        ),
    );
    Ok(())
}

fn with_key(args: &Args) -> Result<Given> {
    crate::place::must_be_room(&args.target)?;
    let name = room_name(&args.target).display().to_string();
    args.open.credential.read(&name)
}

fn verify(args: &Args, files: Files, global: &Global) -> Result<()> {
    let (target, given) = (&args.target, with_key(args)?);
    files.apply(&given, args.open.options(Intent::Change))?;
    // Its files are opened for reading now.
    drop(files);
    let access = Access::open(target, &given, args.open.options(Intent::Read))?;
    let bar = Bar::start("verifying", global);
    let request = Request::Check {
        read_data: true,
        repair: false,
    };
    let reply = access.run(&request, &|done, total| bar.report(done, total));
    bar.end();
    let Reply::Check(report) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
    match global.json {
        true => output::json_line(&report),
        false => check::people(&report, true, global),
    }
    if report.stopped {
        return Err(crate::progress::interrupted());
    }
    if report.findings.is_empty() && report.lost.is_empty() {
        return Ok(());
    }
    Err(Error::said(
        Exit::Damaged,
        format!(
            "{}: the replica is damaged: send everything to an empty place",
            room_name(target).display()
        ),
    ))
}

fn status(target: &Path, global: &Global) -> Result<()> {
    let status = files::status(target)?;
    if global.json {
        output::json_line(&json!({
            "moment": status.moment.map(|m| m.to_string()),
            "epoch": status.epoch,
            "unfinished": status.unfinished.map(|u| json!({
                "since": u.since.map(|m| m.to_string()),
                "to": u.to.to_string(),
                "token": u.token.to_string(),
            })),
        }));
        return Ok(());
    }
    match status.moment {
        Some(moment) => output::line(format!("moment      {moment}")),
        None => output::line("moment      none yet"),
    }
    if let Some(unfinished) = status.unfinished {
        output::line(format!("unfinished  to moment {}", unfinished.to));
        output::line(format!("token       {}", unfinished.token));
    }
    Ok(())
}
