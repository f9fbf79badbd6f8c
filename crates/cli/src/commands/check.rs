//! `strongroom check`: whether a room is whole.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{CheckReply, Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::progress::Bar;

/// Check a room's structure, and with --read-data every byte
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    /// Open every unit of data: reads the whole room
    #[arg(long)]
    read_data: bool,
    /// Mend what can be mended; every range that is given up is listed
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let intent = if args.repair {
        Intent::Change
    } else {
        Intent::Read
    };
    let access = Access::reach(&args.room, &args.open, intent).map_err(|e| match &e {
        Error::Room { source: room::Error::Catalog(_) | room::Error::Damaged(_), .. } => Error::said(
            Exit::Damaged,
            format!(
                "{}: {}; the names and places of files are lost with it: restore the room from a backup \
                 (`strongroom backup` made it)",
                args.room.display(),
                match &e {
                    Error::Room { source, .. } => source.to_string(),
                    other => other.to_string(),
                }
            ),
        ),
        _ => e,
    })?;
    let bar = Bar::start("checking", global);
    let request = Request::Check {
        read_data: args.read_data,
        repair: args.repair,
    };
    let reply = access.run(&request, &|done, total| bar.tell(done, total));
    bar.end();
    let Reply::Check(report) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
    if bar.stopped() {
        return Err(crate::progress::interrupted());
    }
    if global.json {
        output::json_line(&report);
    } else {
        people(&report, args.read_data, global);
    }
    let open_findings = report.findings.len() > report.repaired.len();
    if report.lost.is_empty() && !open_findings {
        return Ok(());
    }
    let next = if args.repair {
        "what is lost is listed above; restore those files from a backup"
    } else {
        "`--repair` mends what can be mended; restore lost files from a backup"
    };
    Err(Error::said(
        Exit::Damaged,
        format!("{}: the room is damaged; {next}", args.room.display()),
    ))
}

fn people(report: &CheckReply, read_data: bool, global: &Global) {
    for finding in &report.findings {
        output::line(format!("found     {finding}"));
    }
    for mended in &report.repaired {
        output::line(format!("mended    {mended}"));
    }
    for range in &report.lost {
        output::line(format!(
            "lost      {}: {} bytes from byte {}",
            range.file, range.length, range.offset
        ));
    }
    let data = if read_data {
        format!(", {} of data read", output::size(report.bytes_read))
    } else {
        String::new()
    };
    output::note(
        global,
        format!(
            "{} files checked{data}: {}",
            report.files,
            match (report.findings.len(), report.lost.len()) {
                (0, 0) => "everything is whole".to_owned(),
                (findings, lost) => format!("{findings} findings, {lost} ranges lost"),
            }
        ),
    );
}
