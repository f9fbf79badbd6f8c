//! `strongroom key`: what opens a room: list, add, remove, change.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use seal::Header;
use serde_json::json;

use crate::access::{Access, Intent, OpenArgs};
use crate::args::Global;
use crate::control::client::{Client, unexpected};
use crate::control::{Reply, Request, SlotReply};
use crate::credentials::{Given, NewCredentialArgs, NewGiven, check_recipients};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::place::{must_be_room, room_argument};
use crate::work;

/// Add, remove, change or list the keys that open a room (up to 32 slots); data is not touched
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a key slot
    Add {
        /// The room's directory, or where it is mounted
        #[arg(value_parser = room_argument())]
        room: PathBuf,
        /// A word for the slot
        #[arg(long, default_value = "")]
        label: String,
        #[command(flatten)]
        open: OpenArgs,
        #[command(flatten)]
        new: NewCredentialArgs,
    },
    /// Remove a key slot; never the last one
    #[command(visible_alias = "rm")]
    Remove {
        /// The room's directory, or where it is mounted
        #[arg(value_parser = room_argument())]
        room: PathBuf,
        /// The slot's number, as `key list` shows it
        slot: u32,
        /// Remove also the slot that the given credential opens
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        open: OpenArgs,
    },
    /// Replace what opens a slot
    Change {
        /// The room's directory, or where it is mounted
        #[arg(value_parser = room_argument())]
        room: PathBuf,
        /// The slot's number [default: the one that the given credential opens]
        #[arg(long)]
        slot: Option<u32>,
        #[command(flatten)]
        open: OpenArgs,
        #[command(flatten)]
        new: NewCredentialArgs,
    },
    /// List the key slots; without a credential, and not mounted, as the header says, unverified
    #[command(visible_alias = "ls")]
    List {
        /// The room's directory, or where it is mounted
        #[arg(value_parser = room_argument())]
        room: PathBuf,
        #[command(flatten)]
        open: OpenArgs,
    },
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Add {
            room,
            label,
            open,
            new,
        } => {
            let request = |with, new| Request::AddSlot { with, new, label };
            let slot = with_new(&room, &open, &new, global, request)?;
            reported(&room, slot, "added", global);
            Ok(())
        }
        Command::Remove {
            room,
            slot,
            force,
            open,
        } => {
            let (access, with) = Access::reach_with_key(&room, &open, Intent::Change)?;
            access.run(&Request::RemoveSlot { with, slot, force }, &|_, _| true)?;
            close(access, global);
            reported(&room, slot, "removed", global);
            Ok(())
        }
        Command::Change {
            room,
            slot,
            open,
            new,
        } => {
            let request = |with, new| Request::ChangeSlot { with, slot, new };
            let slot = with_new(&room, &open, &new, global, request)?;
            reported(&room, slot, "changed", global);
            Ok(())
        }
        Command::List { room, open } => list(&room, &open, global),
    }
}

/// Asks for what needs the present credential and a new one; the slot that has the new one.
fn with_new(
    room: &Path,
    open: &OpenArgs,
    new: &NewCredentialArgs,
    global: &Global,
    request: impl FnOnce(Given, NewGiven) -> Request,
) -> Result<u32> {
    check_recipients(&new.new_recipient)?;
    let (access, with) = Access::reach_with_key(room, open, Intent::Change)?;
    let new = new.read(&room.display().to_string())?;
    let Reply::Slot(slot) = access.run(&request(with, new), &|_, _| true)? else {
        return Err(unexpected());
    };
    close(access, global);
    Ok(slot)
}

/// Closes a room whose keys are changed, and durably so: a failure now must not be taken for one of that.
fn close(access: Access, global: &Global) {
    if let Err(e) = access.close() {
        output::note(global, format!("warning: the keys are changed, but {e}"));
    }
}

fn reported(room: &Path, slot: u32, what: &str, global: &Global) {
    output::done(
        global,
        json!({"slot": slot, "done": what}),
        format!(
            "Key slot {slot} {what}. Backups of the header made before keep the old keys: make a new one with \
             `strongroom header backup {} FILE`, and destroy the old.",
            output::quoted(room)
        ),
    );
}

fn list(room: &Path, open: &OpenArgs, global: &Global) -> Result<()> {
    must_be_room(room)?;
    let verified = open.credential.any() || Client::find(room)?.is_some();
    let slots = if verified {
        let access = Access::reach(room, open, Intent::Read)?;
        let Reply::Slots(slots) = access.run(&Request::Slots {}, &|_, _| true)? else {
            return Err(unexpected());
        };
        access.close()?;
        slots
    } else {
        read_header(room, global)?
            .slots()
            .iter()
            .map(work::slot)
            .collect()
    };
    if global.json {
        output::json_line(&json!({"verified": verified, "slots": slots}));
        return Ok(());
    }
    for slot in &slots {
        output::line(people(slot));
    }
    if !verified {
        output::note(
            global,
            "This is what the header says, unverified; give a credential to have it checked.",
        );
    }
    Ok(())
}

/// A key slot in words.
pub(crate) fn people(slot: &SlotReply) -> String {
    let made = output::moment(i64::try_from(slot.created).unwrap_or(i64::MAX));
    let mut text = format!("{:>2}  {:<10}  {made} UTC", slot.slot, slot.kind);
    if let (Some(memory), Some(passes)) = (slot.kdf_memory_kib, slot.kdf_passes) {
        text.push_str(&format!(
            "  argon2id {} MiB, {}",
            memory >> 10,
            output::count(u64::from(passes), "pass")
        ));
    }
    if !slot.label.is_empty() {
        text.push_str(&format!("  \"{}\"", slot.label));
    }
    for recipient in &slot.recipients {
        text.push_str(&format!("\n    {recipient}"));
        if let Some(program) = seal::recipient_plugin(recipient) {
            text.push_str(&format!("  ({program})"));
        }
    }
    text
}

/// A header's file, or as much of it as shows that it is too long for one.
pub(crate) fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(seal::HEADER_LEN_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What the header of a room says, not verified by any key: the first copy that can be read.
pub(crate) fn read_header(room: &Path, global: &Global) -> Result<Header> {
    let mut problems = Vec::new();
    // One that cannot be read may be whole: there is nothing to restore.
    let mut unread = None;
    // Damage can make of any name one that only a newer version knows: the other copy has it right.
    let mut newer = None;
    let bucket = crate::bucket::storage(room, true).map_err(|e| Error::host(room, e))?;
    for name in ["header.json", "header.backup.json"] {
        let bytes = match &bucket {
            Some(bucket) => storage::read_limited(bucket, name, seal::HEADER_LEN_MAX as u64),
            None => read_bounded(&room.join(name)),
        };
        let parsed = bytes
            .map_err(|e| {
                let words = e.to_string();
                if e.kind() != std::io::ErrorKind::NotFound {
                    unread = Some(Error::host(&room.join(name), e));
                }
                words
            })
            .and_then(|bytes| match Header::parse(&bytes) {
                Ok(header) => Ok(Ok(header)),
                Err(
                    e @ (seal::HeaderError::NewerFormat { .. }
                    | seal::HeaderError::UnknownFeature(_)
                    | seal::HeaderError::UnknownSuite(_)
                    | seal::HeaderError::UnknownKind { .. }),
                ) => Ok(Err(e)),
                Err(e) => Err(e.to_string()),
            });
        match parsed {
            Ok(Ok(header)) => {
                if let [problem] = &problems[..] {
                    output::note(
                        global,
                        format!("warning: {problem}; the backup copy was used"),
                    );
                }
                return Ok(header);
            }
            Ok(Err(problem)) => {
                problems.push(format!("{name}: {problem}"));
                newer.get_or_insert(problem);
            }
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    if let Some(error) = unread {
        return Err(error);
    }
    if let Some(newer) = newer {
        return Err(Error::said(
            Exit::Newer,
            format!("{}: {newer}", room.display()),
        ));
    }
    Err(Error::said(
        Exit::HeaderDamaged,
        format!(
            "{}: both copies of the header are damaged ({}); restore one with: strongroom header restore {} FILE",
            room.display(),
            problems.join("; "),
            output::quoted(room)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `key list` and `info` read the header of a room that nobody has opened yet, whole and into memory: anyone able
    /// to put a file there could exhaust it.
    #[test]
    fn no_more_of_a_header_is_read_than_a_header_has() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("header.json");
        File::create(&path).unwrap().set_len(64 << 30).unwrap();
        let bytes = read_bounded(&path).unwrap();
        assert_eq!(bytes.len(), seal::HEADER_LEN_MAX + 1);
        assert!(matches!(
            Header::parse(&bytes),
            Err(seal::HeaderError::TooLong(_))
        ));
    }
}
