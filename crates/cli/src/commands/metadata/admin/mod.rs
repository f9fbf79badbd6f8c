//! What commands ask of a room's users and disks: of its running metadata server, through its socket, or of the room itself
//! where none runs.
//!
//! 1. The socket is its owner's alone (0600); only that user and root are answered. What goes over it may be secret: a
//!    disk's key, a user's. Root sends it also to a process of the user who owns the room's directory, which has the room's
//!    keys when it serves: a service has a user of its own.
//! 2. One request a connection, one line of JSON each way, bounded in length and time; an unknown field is an error.
//! 3. Both ways give the same answers.

mod messages;
mod restores;
mod socket;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;
use std::time::Duration;

use metadata_proto::admin::Ended;
use metadata_server::audit::event::Admin;
use metadata_server::enrol::{self, EnrolError, User};
use metadata_server::server::{Beside, ServerError};
use zeroize::Zeroizing;

use crate::access::{Intent, OpenArgs};
use crate::broker::Broker;
use crate::bucket;
use crate::control;
use crate::credentials::HexSecret;
use crate::descriptors::encode_line;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::mounting::remote;
use crate::place::must_be_room;
use crate::socket::{Trust, connect};
use crate::work::Progress;

pub(super) use messages::protection;
pub(crate) use messages::{Comeback, DiskRow, Reply, Request, RestoredReply, Version};
pub(crate) use socket::Socket;

/// The socket's name.
const SOCKET: &str = "metadata";
/// For a line to be there.
const LINE_TIME: Duration = Duration::from_secs(10);
/// Longest line of an answer, bytes: what differs between two snapshots.
const ANSWER_MAX: usize = control::ANSWER_LINE_MAX;
/// For an answer: longer than a revocation waits for a disk.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// For an answer about snapshots, which may read all that was removed.
const SNAPSHOTS_TIME: Duration = Duration::from_secs(600);

/// Has a request carried out, by the running server or here.
pub(crate) fn ask(room: &Path, open: &OpenArgs, request: Request) -> Result<Reply> {
    if let Some(address) = remote::address(room)? {
        return super::remote::ask(&address, open, request);
    }
    must_be_room(room)?;
    if let Some(reply) = ask_running(room, &request)? {
        return Ok(reply);
    }
    let given = open.credential.read(&room.display().to_string())?;
    let options = open.options(Intent::Change);
    let opened = Beside::open(
        room,
        &given.credential()?,
        options,
        &*bucket::files_of(room),
    )
    .map_err(|e| refused(room, e))?;
    let reply = carry_out_beside(&opened, request).map_err(|e| refused(room, e));
    let closed = opened.room.close().map_err(|e| Error::room(room, e));
    let reply = reply?;
    closed?;
    Ok(reply)
}

/// Asks the running server; `None` where none runs.
pub(crate) fn ask_running(room: &Path, request: &Request) -> Result<Option<Reply>> {
    ask_with_progress(room, request, &|_, _| true, &mut || {
        Err(Error::failed("no directory was named"))
    })
}

/// The same for work of which the server reports progress, and for which it needs a directory: `directory` opens it.
pub(crate) fn ask_with_progress(
    room: &Path,
    request: &Request,
    progress: Progress<'_>,
    directory: &mut dyn FnMut() -> Result<Broker>,
) -> Result<Option<Reply>> {
    let stream = match connect(room, SOCKET, Trust::OwnerToo) {
        Ok(stream) => stream,
        // No socket, or one that a killed server left.
        Err(why) => return why.refusal(room, "served").map_or(Ok(None), Err),
    };
    let failed =
        |e: std::io::Error| Error::failed(format!("{}: its metadata server: {e}", room.display()));
    let time = match request {
        // It waits for what takes the stream.
        Request::Snapshots { request } if matches!(**request, control::Request::Send { .. }) => {
            None
        }
        Request::Snapshots { .. } | Request::PutBack(_) => Some(SNAPSHOTS_TIME),
        _ => Some(ANSWER_TIME),
    };
    let begin = || -> std::io::Result<()> {
        stream.set_read_timeout(time)?;
        stream.set_write_timeout(Some(LINE_TIME))?;
        (&stream).write_all(&encode_line(request))
    };
    begin().map_err(failed)?;
    let mut broker = None;
    let mut lines = BufReader::new(&stream);
    let answer = loop {
        let answer = read_answer(&mut lines).map_err(failed)?;
        match serde_json::from_slice(&answer) {
            // Closing the connection is how the server learns that it shall stop.
            Ok(Reply::Progress(done, total)) if !progress(done, total) => {
                return Err(crate::progress::interrupted());
            }
            Ok(Reply::Progress(..)) => {}
            Ok(Reply::Step(step)) => {
                let broker = match &broker {
                    Some(broker) => broker,
                    None => broker.insert(directory()?),
                };
                match broker.answer(&step, &stream) {
                    // It waits for no step any more, and says why.
                    Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
                    done => done.map_err(failed)?,
                }
            }
            _ => break answer,
        }
    };
    match serde_json::from_slice(&answer) {
        Ok(Reply::Refused { exit, message }) => Err(Error::said(Exit::from_code(exit), message)),
        Ok(reply) => Ok(Some(reply)),
        Err(_) => Err(Error::failed_at(
            room,
            "its metadata server answers something else: is it of another version? Restart it",
        )),
    }
}

/// The answer is of another kind than was asked for.
pub(crate) fn unexpected() -> Error {
    Error::failed("the metadata server answers something else: is it of another version?")
}

fn read_answer(lines: &mut impl BufRead) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::new());
    lines.take(ANSWER_MAX as u64).read_until(b'\n', &mut line)?;
    if !line.ends_with(b"\n") {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

/// A refusal in words, with its exit code.
pub(crate) fn refused(room: &Path, error: ServerError) -> Error {
    match error {
        ServerError::Room(e) | ServerError::Enrol(EnrolError::Room(e)) => Error::room(room, e),
        ServerError::NoPlaceElsewhere { .. } => Error::said(Exit::Busy, error.to_string()),
        other => Error::failed(format!("{}: {other}", room.display())),
    }
}

fn identity_text(identity: &enrol::Identity, user: &User) -> HexSecret {
    let text = identity.to_text(&user.name);
    HexSecret(room::Secret::from(text.as_bytes().to_vec()))
}

fn leaving(left: Option<u64>, now: bool) -> Reply {
    match left {
        None => Reply::Done,
        Some(left) => Reply::Leaving { left, now },
    }
}

fn carry_out_beside(opened: &Beside, request: Request) -> std::result::Result<Reply, ServerError> {
    let room = &opened.room;
    Ok(match request {
        Request::Status {}
        | Request::StepDown {}
        | Request::Backup { .. }
        | Request::Snapshots { .. }
        | Request::PutBack(_) => return Err(ServerError::NotNow),
        Request::AddUser { name, uid, gids } => {
            opened.keep_for_audit(Admin::UserAdded {
                name: name.clone(),
                user_uid: uid,
                user_gids: gids.clone(),
            })?;
            let (user, identity) = enrol::add_user(room, &name, uid, &gids)?;
            Reply::Identity(identity_text(&identity, &user))
        }
        Request::AddAdmin { name } => {
            opened.keep_for_audit(Admin::AdministratorAdded { name: name.clone() })?;
            let (user, identity) = enrol::add_admin(room, &name)?;
            Reply::Identity(identity_text(&identity, &user))
        }
        Request::RenewUser {
            name,
            replaces,
            overlap_s,
        } => {
            let overlap = Duration::from_secs(overlap_s);
            opened.keep_for_audit(Admin::UserRenewed { name: name.clone() })?;
            let (user, identity) = enrol::renew_user(room, &name, replaces, overlap)?;
            Reply::Identity(identity_text(&identity, &user))
        }
        Request::RotateAuthority {} => {
            opened.keep_for_audit(Admin::AuthorityRotated {})?;
            enrol::rotate_authority(room)?;
            Reply::Done
        }
        Request::FinishRotation { force } => {
            opened.keep_for_audit(Admin::RotationFinished { forced: force })?;
            enrol::finish_rotation(room, force)?;
            Reply::Done
        }
        Request::RemoveUser { name } => {
            opened.keep_for_audit(Admin::UserRemoved { name: name.clone() })?;
            enrol::remove_user(room, &name)?;
            Reply::Removed(Ended::All)
        }
        Request::SetQuota { name, quota } => {
            opened.set_quota(&name, quota)?;
            Reply::Done
        }
        Request::Users {} => Reply::Users(opened.users()?),
        Request::AddDisk { disk } => {
            opened.add_disk(disk)?;
            Reply::Done
        }
        Request::RemoveDisk { name } => leaving(opened.remove_disk(&name)?, false),
        Request::Disks {} => {
            let mut rows: Vec<DiskRow> = enrol::disks(room)?.iter().map(DiskRow::known).collect();
            for (id, left) in opened.removals() {
                let id = id.to_string();
                for row in rows.iter_mut().filter(|row| row.id == id) {
                    row.leaving = Some(left);
                }
            }
            Reply::Disks(rows)
        }
    })
}
