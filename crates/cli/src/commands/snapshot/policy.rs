//! `strongroom snapshot policy`: when the mount of a room creates automatic snapshots, and how many are kept.

use clap::Subcommand;
use room::SnapshotPolicy;
use serde_json::json;

use super::InRoom;
use crate::access::Intent;
use crate::args::Global;
use crate::control::client::unexpected;
use crate::control::{Reply, Request};
use crate::error::{Error, Result};
use crate::output;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Keep the newest automatic snapshot of each of the last N hours, days and weeks that have one
    Set {
        #[command(flatten)]
        room: InRoom,
        #[command(flatten)]
        policy: PolicyArgs,
    },
    /// Show the policy
    Show {
        #[command(flatten)]
        room: InRoom,
    },
    /// Remove the policy: no automatic snapshots are created or deleted any more
    Clear {
        #[command(flatten)]
        room: InRoom,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct PolicyArgs {
    /// Hours of which one is kept
    #[arg(long, value_name = "N", default_value_t = 0)]
    hourly: u32,
    /// Days of which one is kept
    #[arg(long, value_name = "N", default_value_t = 0)]
    daily: u32,
    /// Weeks, from Monday, of which one is kept
    #[arg(long, value_name = "N", default_value_t = 0)]
    weekly: u32,
    /// With less than this part of the disk free, create none and delete the oldest automatic snapshots earlier: 10%
    #[arg(long, value_name = "P%", default_value = "0%", value_parser = percent)]
    min_free: u8,
}

fn percent(text: &str) -> std::result::Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse();
    match number {
        Ok(number @ 0..=99) => Ok(number),
        _ => Err(format!(
            "`{text}` is not a part of the disk: write 0% to 99%"
        )),
    }
}

pub(super) fn run(command: Command, global: &Global) -> Result<()> {
    match command {
        Command::Set { room, policy } => {
            let policy = SnapshotPolicy {
                hourly: policy.hourly,
                daily: policy.daily,
                weekly: policy.weekly,
                min_free_percent: policy.min_free,
            };
            policy.check().map_err(|_| {
                Error::usage(
                    "a policy keeps something: give --hourly, --daily or --weekly a number above 0; `policy clear` removes a policy",
                )
            })?;
            let policy = Some(policy);
            room.ask(Intent::Change, &Request::SetSnapshotPolicy { policy })
                .map(drop)
        }
        Command::Clear { room } => room
            .ask(Intent::Change, &Request::SetSnapshotPolicy { policy: None })
            .map(drop),
        Command::Show { room } => show(&room, global),
    }
}

fn show(room: &InRoom, global: &Global) -> Result<()> {
    let Reply::Policy(policy) = room.ask(Intent::Read, &Request::SnapshotPolicy {})? else {
        return Err(unexpected());
    };
    let Some(policy) = policy else {
        if global.json {
            output::json_line(&json!({"policy": null}));
        } else {
            output::line("no policy");
        }
        return Ok(());
    };
    if global.json {
        output::json_line(&json!({"policy": {
            "hourly": policy.hourly,
            "daily": policy.daily,
            "weekly": policy.weekly,
            "min_free_percent": policy.min_free_percent,
        }}));
        return Ok(());
    }
    output::line(format!("hourly    {}", policy.hourly));
    output::line(format!("daily     {}", policy.daily));
    output::line(format!("weekly    {}", policy.weekly));
    output::line(format!("min-free  {}%", policy.min_free_percent));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_disk_is_read_with_and_without_its_sign() {
        assert_eq!(percent("10%"), Ok(10));
        assert_eq!(percent("0"), Ok(0));
        for bad in ["100%", "-1", "", "%", "1.5%"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
