//! Carries requests out on an open room. The unmounted room's command and the mounted room's control socket both end here,
//! so that they cannot differ.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use room::{Credential, FileSystem as _, Room, SendRequest, Snapshots as _, restore};
use storage::{HostStorage, Storage};

use crate::blamed::{Blame, blamed};
use crate::broker::Broker;
use crate::bucket;
use crate::credentials::Given;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::{hex, path_from_hex};
use crate::place::is_room;
use crate::snapshots;
use crate::wire::{
    BackupReply, CheckReply, CompactReply, InfoReply, LostReply, RekeyReply, Reply, Request,
    SentReply, SlotReply, SpaceReply,
};

/// Called with (bytes done, bytes in all) by the working thread; false stops the work at the next safe point.
pub(crate) type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// Carries out a request on the room in `dir`.
pub(crate) fn carry_out(
    dir: &Path,
    room: &Room,
    request: &Request,
    progress: Progress<'_>,
) -> Result<Reply> {
    let failed = |e| Error::room(dir, e);
    Ok(match request {
        // Facts of the mount, not of the room: the server answers them itself.
        Request::Status {}
        | Request::AwaitClose {}
        | Request::Detached {}
        | Request::Send { .. } => {
            return Err(Error::said_at(
                Exit::NotMounted,
                dir,
                "the room is not mounted",
            ));
        }
        Request::Info {} => Reply::Info(info(dir, room).map_err(failed)?),
        Request::Space {} => {
            Reply::Space(space(dir, room, &room.space().map_err(failed)?).map_err(failed)?)
        }
        Request::Sync {} => {
            room.sync().map_err(failed)?;
            Reply::Nothing
        }
        Request::Slots {} => Reply::Slots(room.slots().iter().map(slot).collect()),
        Request::AddSlot { with, new, label } => {
            must_open(dir, room, with)?;
            Reply::Slot(room.add_slot(new.credential()?, label).map_err(failed)?)
        }
        Request::RemoveSlot { with, slot, force } => {
            let (_, opened) = must_open(dir, room, with)?;
            if opened == *slot && !force && room.slots().len() > 1 {
                return Err(Error::failed(format!(
                    "{}: key slot {slot} is the one that was opened just now: give a credential that stays, so that it is sure \
                     the room still opens, or --force",
                    dir.display()
                )));
            }
            room.remove_slot(*slot).map_err(failed)?;
            Reply::Nothing
        }
        Request::ChangeSlot { with, slot, new } => {
            let (_, opened) = must_open(dir, room, with)?;
            let slot = slot.unwrap_or(opened);
            room.change_slot(slot, new.credential()?).map_err(failed)?;
            Reply::Slot(slot)
        }
        Request::HeaderBackup { with } => {
            must_open(dir, room, with)?;
            Reply::Header(hex(&room.header_backup()))
        }
        Request::Check { read_data, repair } => Reply::Check(check(
            room.check(*read_data, *repair, progress).map_err(failed)?,
        )),
        Request::Compact { percent } => {
            let report = room.compact(*percent, progress).map_err(failed)?;
            Reply::Compacted(CompactReply {
                segments_rewritten: report.segments_rewritten,
                bytes_moved: report.bytes_moved,
                bytes_given_back: report.bytes_freed,
                unreadable: report.unreadable,
                stopped: report.stopped,
            })
        }
        Request::Backup { target } => {
            let target = path_from_hex(target)?;
            prepare_backup(dir, &target)?;
            let storage = HostStorage::open(&target).map_err(|e| Error::host(&target, e))?;
            let (storage, blame) = blamed(storage);
            let report = room.backup_through(storage, &target, progress);
            Reply::Backup(backup_reply(
                report.map_err(|e| backup_failed(dir, &target, e, &blame))?,
            ))
        }
        Request::CreateSnapshot { name } => {
            Reply::Snapshot(snapshots::create(dir, room, name.as_deref())?)
        }
        Request::SnapshotBeforeRestore {} => {
            Reply::Snapshot(snapshots::of_restore(dir, room, restore::BEFORE)?)
        }
        Request::SnapshotDuringRestore {} => {
            Reply::Snapshot(snapshots::of_restore(dir, room, restore::DURING)?)
        }
        Request::Snapshots {} => Reply::Snapshots(snapshots::list(dir, room)?),
        Request::RenameSnapshot { from, to } => {
            snapshots::rename(dir, room, from, to)?;
            Reply::Nothing
        }
        Request::DeleteSnapshot { name } => {
            snapshots::delete(dir, room, name)?;
            Reply::Nothing
        }
        Request::DiffSnapshots { from, to } => {
            let go_on = || progress(0, 0);
            let changes = snapshots::changes(dir, room, from, to.as_deref(), &go_on)?;
            Reply::Changes(changes)
        }
        Request::Removed { since } => {
            Reply::Removed(snapshots::removed(dir, room, since.as_deref())?)
        }
        Request::SnapshotPolicy {} => Reply::Policy(room.snapshot_policy().map_err(failed)?),
        Request::SetSnapshotPolicy { policy } => {
            room.set_snapshot_policy(policy.as_ref()).map_err(failed)?;
            Reply::Nothing
        }
        Request::PruneSnapshots { dry_run } => {
            Reply::Pruned(snapshots::prune(dir, room, *dry_run)?)
        }
        Request::SnapshotOfMoment { moment } => {
            let moment = moment.parse().map_err(failed)?;
            Reply::SnapshotName(room.snapshot_of(&moment).map_err(failed)?)
        }
        Request::Rekey { with, drop_slots } => {
            let (credential, _) = must_open(dir, room, with)?;
            let report = match drop_slots {
                true => room.rekey(&credential, progress),
                false => room.rekey_keeping_slots(&credential, progress),
            };
            let report = report.map_err(failed)?;
            Reply::Rekeyed(rekey_reply(report))
        }
    })
}

/// Writes a snapshot as a stream; what is collected before it is in the directory `scratch`, which people know by its name. `None`: the
/// token of an interrupted transfer is of something else, or what was sent has moved.
pub(crate) fn send(
    dir: &Path,
    room: &Room,
    request: &SendRequest,
    (scratch, name): (impl Storage + 'static, &Path),
    out: &mut dyn Write,
    progress: Progress<'_>,
) -> Result<Option<SentReply>> {
    let (scratch, blame) = blamed(scratch);
    match room.send_through(request, &scratch, out, progress) {
        Ok(report) => Ok(Some(SentReply {
            moment: report.moment.to_string(),
            sent: report.sent,
            data: report.data,
        })),
        // It asks for less than another attempt without the token; other arguments that are wrong stay so.
        Err(room::Error::InvalidArgument(what))
            if request.resume.is_some() && what.contains("token") =>
        {
            Ok(None)
        }
        Err(room::Error::NotFound) => Err(Error::failed(format!(
            "{}: there is no snapshot {}",
            dir.display(),
            match &request.since {
                Some(since) => format!("{}, or no {since}", request.to),
                None => request.to.clone(),
            }
        ))),
        Err(e) => Err(blame.error(name).unwrap_or_else(|| Error::room(dir, e))),
    }
}

/// Whether a request has an age plugin started: another program.
pub(crate) fn needs_plugin(room: &Room, request: &Request) -> bool {
    match request {
        Request::AddSlot { with, new, .. } | Request::ChangeSlot { with, new, .. } => {
            with.uses_plugin() || new.uses_plugin()
        }
        Request::RemoveSlot { with, .. } | Request::HeaderBackup { with } => with.uses_plugin(),
        // Every slot is sealed again. One whose plugin cannot be started would be lost.
        Request::Rekey { with, .. } => {
            let mut slots = room.slots().into_iter();
            with.uses_plugin()
                || slots.any(|slot| {
                    slot.recipients
                        .iter()
                        .any(|r| seal::recipient_plugin(r).is_some())
                })
        }
        _ => false,
    }
}

/// Opens the directory of a backup for the process that has the room, and creates it where it is missing.
pub(crate) fn backup_directory(dir: &Path, target: &Path) -> Result<Broker> {
    prepare_backup(dir, target)?;
    Broker::of(target).map_err(|e| Error::host(target, e))
}

fn prepare_backup(dir: &Path, target: &Path) -> Result<()> {
    room::prepare_backup(dir, target).map_err(|e| match e {
        // The others say what they are about.
        room::Error::Io(e) if e.raw_os_error().is_some() => Error::host(target, e),
        e => backup_failed(dir, target, e, &Blame::default()),
    })
}

pub(crate) fn rekey_reply(report: room::RekeyReport) -> RekeyReply {
    RekeyReply {
        dropped_slots: report.dropped_slots.iter().map(slot).collect(),
        segments_resealed: report.segments_resealed,
        finished: report.finished,
        unreadable: report.unreadable,
    }
}

pub(crate) fn backup_reply(report: room::BackupReport) -> BackupReply {
    BackupReply {
        generation: report.generation,
        segments_copied: report.segments_copied,
        segments_kept: report.segments_kept,
        bytes_copied: report.bytes_copied,
        problems: report.problems,
    }
}

/// Why a backup failed: some errors are about its target, to whose storage `blame` belongs.
pub(crate) fn backup_failed(
    room: &Path,
    target: &Path,
    error: room::Error,
    blame: &Blame,
) -> Error {
    let is_stopped =
        matches!(&error, room::Error::Io(e) if e.kind() == std::io::ErrorKind::Interrupted);
    if !is_stopped && let Some(error) = blame.error(target) {
        return error;
    }
    match error {
        room::Error::NotEmptyTarget(_) if is_room(target) => Error::failed_at(
            target,
            "is a room, and no backup of this room as `strongroom backup` left it; choose a new directory. To bring a backup back: strongroom restore BACKUP NEW-DIRECTORY",
        ),
        room::Error::NotEmptyTarget(_) => Error::failed_at(
            target,
            "exists, is not empty, and is no earlier backup of this room; choose a new directory",
        ),
        error => Error::room(room, error),
    }
}

/// Looks at a room that cannot be opened.
pub(crate) fn examine(dir: &Path, given: &Given) -> Result<CheckReply> {
    let report =
        bucket::examine_room(dir, &given.credential()?).map_err(|e| Error::room(dir, e))?;
    Ok(check(report))
}

fn check(report: room::CheckReport) -> CheckReply {
    let lost = report.lost.into_iter().map(|range| LostReply {
        path: range.path,
        inode: range.inode,
        offset: range.offset,
        length: range.len,
    });
    CheckReply {
        files: report.files,
        directories: report.directories,
        bytes_read: report.bytes_read,
        findings: report.findings,
        lost: lost.collect(),
        repaired: report.repaired,
        stopped: report.stopped,
    }
}

/// Proves that a credential opens the room as it is, and says which slot it opened. An open room does not prove
/// that: a caller that changes keys or exports the header must bring one.
fn must_open(dir: &Path, room: &Room, with: &Given) -> Result<(Credential, u32)> {
    let credential = with.credential()?;
    let unreadable =
        |e: String| Error::said(Exit::HeaderDamaged, format!("{}: {e}", dir.display()));
    let header =
        seal::Header::parse(&room.header_backup()).map_err(|e| unreadable(e.to_string()))?;
    let unlocked = header.unlock(&credential).map_err(|e| match e {
        seal::SealError::WrongCredential { .. } | seal::SealError::NoSuchKind { .. } => {
            Error::said(Exit::WrongCredential, format!("{}: {e}", dir.display()))
        }
        other => unreadable(other.to_string()),
    })?;
    Ok((credential, unlocked.slot))
}

fn info(dir: &Path, room: &Room) -> room::Result<InfoReply> {
    let info = room.info()?;
    Ok(InfoReply {
        id: info.id.to_string(),
        format: info.format,
        suite: info.suite.name().to_owned(),
        generation: info.generation,
        key_epoch: info.key_epoch,
        rekeying: info.rekeying,
        created: info.created,
        slots: info.slots as u64,
        segments: info.segments,
        snapshots: room.snapshots()?.len() as u64,
        space: space(dir, room, &info.space)?,
        store: bucket::usage(dir).map(Box::new),
    })
}

fn space(dir: &Path, room: &Room, space: &room::RoomSpace) -> room::Result<SpaceReply> {
    Ok(SpaceReply {
        total: space.total,
        free: space.free,
        available: space.available,
        live: space.live,
        stored: allocated(dir).unwrap_or(space.stored),
        reserved: space.reserved,
        inodes: space.inodes,
        snapshots: room.held_by_snapshots()?,
    })
}

/// Bytes that the segments take on the disk. Their lengths say more than that: deleted ranges are holes. `None`: unknown.
fn allocated(dir: &Path) -> Option<u64> {
    let files = std::fs::read_dir(dir.join("segments")).ok()?;
    let blocks = files.map(|file| file?.metadata().map(|meta| meta.blocks()));
    let blocks: std::io::Result<u64> = blocks.sum();
    Some(blocks.ok()? * 512)
}

/// A key slot as it is reported.
pub(crate) fn slot(slot: &seal::SlotInfo) -> SlotReply {
    SlotReply {
        slot: slot.id,
        kind: slot.kind.name().to_owned(),
        label: slot.label.clone(),
        created: slot.created_unix_s,
        kdf_memory_kib: slot.cost.map(|cost| cost.memory_kib),
        kdf_passes: slot.cost.map(|cost| cost.passes),
        kdf_lanes: slot.cost.map(|cost| cost.lanes),
        recipients: slot.recipients.clone(),
        plugins: plugins(slot),
    }
}

/// The programs of the age plugins that a slot's recipients name.
fn plugins(slot: &seal::SlotInfo) -> Vec<String> {
    let named = slot.recipients.iter();
    let mut programs: Vec<_> = named.filter_map(|r| seal::recipient_plugin(r)).collect();
    programs.sort_unstable();
    programs.dedup();
    programs
}
