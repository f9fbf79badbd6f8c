//! `strongroom check`: whether a room is whole.

use std::path::PathBuf;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::{Client, unexpected};
use crate::control::{CheckReply, Reply, Request};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::{must_be_room, room_argument};
use crate::progress::Bar;
use crate::proxy::room_name;
use crate::work;

/// Check a room's structure, and with --read-data every byte
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory, or where it is mounted
    #[arg(value_parser = room_argument())]
    room: PathBuf,
    /// Open every unit of data: reads the whole room
    #[arg(long)]
    read_data: bool,
    /// Repair what can be repaired; every discarded range is listed
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
    must_be_room(&args.room)?;
    let report = if let Some(client) = Client::find(&args.room)? {
        check_open(Access::Mounted(client), &args, global)?
    } else {
        let given = args
            .open
            .credential
            .read(&args.room.display().to_string())?;
        match Access::open(&args.room, &given, args.open.options(intent)) {
            Ok(access) => check_open(access, &args, global)?,
            // A room that cannot be opened can still be examined.
            Err(error) if error.exit() == Exit::Damaged => {
                output::report(&error, global);
                work::examine(&args.room, &given)?
            }
            Err(error) => return Err(error),
        }
    };
    if global.json {
        output::json_line(&report);
    } else {
        people(&report, args.read_data, global);
    }
    if report.stopped {
        return Err(crate::progress::interrupted());
    }
    let all_repaired = args.repair && report.findings.len() <= report.repaired.len();
    if report.lost.is_empty() && (report.findings.is_empty() || all_repaired) {
        return Ok(());
    }
    let next = match (args.repair, args.read_data) {
        (true, true) => "what is lost is listed above; restore those files from a backup",
        (true, false) => {
            "`--read-data` reads all data and lists the files that lost some; restore those from a backup"
        }
        (false, true) => {
            "`--read-data --repair` repairs what can be repaired; restore lost files from a backup"
        }
        (false, false) => {
            "`--repair` repairs what can be repaired; restore lost files from a backup"
        }
    };
    Err(Error::said(
        Exit::Damaged,
        format!(
            "{}: the room is damaged; {next}",
            room_name(&args.room).display()
        ),
    ))
}

fn check_open(access: Access, args: &Args, global: &Global) -> Result<CheckReply> {
    let bar = Bar::start("checking", global);
    let request = Request::Check {
        read_data: args.read_data,
        repair: args.repair,
    };
    let reply = access.run(&request, &|done, total| bar.report(done, total));
    bar.end();
    let Reply::Check(report) = reply? else {
        return Err(unexpected());
    };
    access.close()?;
    Ok(report)
}

pub(super) fn people(report: &CheckReply, read_data: bool, global: &Global) {
    for finding in &report.findings {
        output::line(format!("found     {}", output::shown(finding.as_ref())));
    }
    for repaired in &report.repaired {
        output::line(format!("repaired  {}", output::shown(repaired.as_ref())));
    }
    for range in &report.lost {
        output::line(format!(
            "lost      {}: {} from byte {}",
            output::shown(range.path.as_ref()),
            output::count(range.length, "byte"),
            range.offset
        ));
    }
    let data = if read_data {
        format!(", {} of data read", output::size(report.bytes_read))
    } else {
        String::new()
    };
    let outcome = match (report.findings.len(), report.lost.len()) {
        (0, 0) if read_data => "everything is whole".to_owned(),
        (0, 0) => "everything is whole but perhaps the data, which was not read".to_owned(),
        (findings, lost) => format!(
            "{}, {} lost",
            output::count(findings as u64, "finding"),
            output::count(lost as u64, "range")
        ),
    };
    output::note(
        global,
        format!(
            "{} and {} checked{data}: {outcome}",
            output::count(report.files, "file"),
            output::count(report.directories, "directory")
        ),
    );
}
