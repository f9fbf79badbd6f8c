//! `strongroom metadata status`: what a running metadata server is doing.

use std::path::PathBuf;

use super::admin::{self, Reply, Request};
use crate::args::Global;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::must_be_room;
use crate::proxy::room_name;

/// Show what a running metadata server is doing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    must_be_room(&args.room)?;
    let Some(reply) = admin::ask_running(&args.room, &Request::Status {})? else {
        return Err(Error::said(
            Exit::NotMounted,
            format!(
                "{}: no metadata server runs; start one with: strongroom metadata serve --room {}",
                room_name(&args.room).display(),
                output::quoted(&room_name(&args.room))
            ),
        ));
    };
    let Reply::Status(status) = reply else {
        return Err(admin::unexpected());
    };
    if global.json {
        output::json_line(&status);
        return Ok(());
    }
    let state = match (status.serving, status.standby) {
        (true, _) => "serves",
        (false, true) => "is on standby",
        (false, false) => "reopens the room",
    };
    output::line(format!(
        "process {} {state} at {}",
        status.pid, status.address
    ));
    output::line(format!(
        "{} connections, {} sessions; {} files open, {} ranges granted, {} ranges locked",
        status.connections,
        status.sessions.len(),
        status.opens,
        status.grants,
        status.locks
    ));
    output::line(format!(
        "{} capabilities given, {} revoked; the room was reopened {} times",
        status.capabilities_issued, status.capabilities_revoked, status.reopened
    ));
    if let Some(entries) = status.audit_entries {
        let state = if status.audit_failing {
            ", and cannot be written"
        } else {
            ""
        };
        output::line(format!(
            "the audit log has {}{state}",
            output::count(entries, "entry")
        ));
    }
    for (id, user) in &status.sessions {
        output::line(format!("session {id:016x} of {user}"));
    }
    for disk in &status.disks {
        let state = if disk.reachable == Some(true) {
            format!(
                "{} of {} used",
                output::size(disk.used),
                output::size(disk.bytes)
            )
        } else {
            "does not answer".into()
        };
        output::line(format!(
            "disk {} at {} ({}): {state}; {} capabilities, {} revocations to come{}",
            disk.name,
            disk.address,
            disk.protection,
            disk.capabilities,
            disk.pending,
            disk.removal()
        ));
    }
    for lifetime in &status.lifetimes {
        if lifetime.is_due() || lifetime.end.is_none() || lifetime.replaced {
            output::line(format!("{}: {}", lifetime.of, output::end(lifetime.end)));
        }
    }
    Ok(())
}
