//! The server's side of the socket: requests are read, carried out and answered.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metadata_server::audit::event::Admin;
use metadata_server::server::{MetadataServer, ServerError};

use super::messages::{DiskRow, Reply, Request, Status};
use super::{LINE_TIME, SOCKET, identity_text, leaving, refused, restores};
use crate::blamed::blamed;
use crate::broker::Brokered;
use crate::control;
use crate::descriptors::encode_line;
use crate::error::{Error, Result};
use crate::hex::path_from_hex;
use crate::reporting::Reporting;
use crate::sending;
use crate::socket::{self, Listener};
use crate::work;

/// Longest line of a request, bytes.
const LINE_MAX: usize = 16 << 20;

fn carry_out(server: &MetadataServer, request: Request) -> std::result::Result<Reply, ServerError> {
    Ok(match request {
        Request::Status {} => Reply::Status(Box::new(status(server))),
        Request::AddUser { name, uid, gids } => {
            let (user, identity) = server.add_user(&name, uid, &gids)?;
            Reply::Identity(identity_text(&identity, &user))
        }
        Request::AddAdmin { name } => {
            let (user, identity) = server.add_admin(&name)?;
            Reply::Identity(identity_text(&identity, &user))
        }
        Request::RenewUser {
            name,
            replaces,
            overlap_s,
        } => {
            let overlap = Duration::from_secs(overlap_s);
            let (user, identity) = server.renew_user(&name, replaces, overlap)?;
            Reply::Identity(identity_text(&identity, &user))
        }
        Request::StepDown {} => {
            server.step_down()?;
            Reply::Done
        }
        Request::RotateAuthority {} => {
            server.rotate_authority()?;
            Reply::Done
        }
        Request::FinishRotation { force } => {
            server.finish_rotation(force)?;
            Reply::Done
        }
        Request::RemoveUser { name } => Reply::Removed(server.remove_user(&name)?),
        Request::SetQuota { name, quota } => {
            server.set_quota(&name, quota)?;
            Reply::Done
        }
        Request::Users {} => Reply::Users(server.users()?),
        Request::AddDisk { disk } => {
            server.add_disk(disk)?;
            Reply::Done
        }
        Request::RemoveDisk { name } => leaving(server.remove_disk(&name)?, true),
        Request::Disks {} => Reply::Disks(server.disks()?.iter().map(DiskRow::running).collect()),
        // They have threads of their own.
        Request::Backup { .. } | Request::Snapshots { .. } | Request::PutBack(_) => {
            return Err(ServerError::NotNow);
        }
    })
}

fn status(server: &MetadataServer) -> Status {
    let metrics = server.metrics();
    let audit = server.audit();
    let sessions = server.sessions().unwrap_or_default();
    Status {
        pid: std::process::id(),
        address: server.local_addr().to_string(),
        serving: metrics.serving,
        standby: server.is_standing_by(),
        connections: metrics.connections,
        sessions: sessions
            .into_iter()
            .map(|(id, name)| (id.0, name))
            .collect(),
        opens: metrics.opens,
        grants: metrics.grants,
        locks: metrics.locks,
        capabilities_issued: metrics.capabilities.issued,
        capabilities_revoked: metrics.capabilities.revoked,
        reopened: metrics.reopened,
        disks: metrics.disks.iter().map(DiskRow::running).collect(),
        audit_entries: audit.map(|(entries, _)| entries),
        audit_failing: audit.is_some_and(|(_, failing)| failing),
        lifetimes: server.lifetimes().unwrap_or_default(),
    }
}

/// The server that is asked; `None`: it stops, and nobody is answered any more.
type Asked = Arc<Mutex<Option<Arc<MetadataServer>>>>;

/// Whether work goes on that has not changed anything yet. The server ends only when nobody works on it any more.
fn is_wanted(asked: &Asked) -> bool {
    let server = asked.lock().unwrap_or_else(PoisonError::into_inner);
    server.is_some()
}

/// The server's side of the socket; its name is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: Arc<Listener>,
    server: Asked,
}

impl Socket {
    /// Binds the socket and begins to answer. The server holds the room's lock, so a socket already there is a leftover.
    pub(crate) fn start(dir: &Path, server: &Arc<MetadataServer>) -> std::io::Result<Self> {
        let listener = Arc::new(Listener::bind(dir, SOCKET)?);
        let bound = Self {
            listener: listener.clone(),
            server: Arc::new(Mutex::new(Some(server.clone()))),
        };
        let (room, server) = (dir.to_owned(), bound.server.clone());
        std::thread::Builder::new()
            .name("admin".into())
            .spawn(move || {
                // One at a time: these are few, and each is bounded in time.
                loop {
                    let answered = listener
                        .accept()
                        .and_then(|stream| answer(&stream, &room, &server));
                    match answered {
                        Ok(()) => {}
                        // It may have looked only whether somebody listens.
                        Err(e) if socket::says_left(&e) => tracing::debug!("admin socket: {e}"),
                        Err(e) => {
                            tracing::warn!("admin socket: {e}");
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    }
                }
            })?;
        Ok(bound)
    }

    /// Nobody is answered any more; the server is let go.
    pub(crate) fn stop(self) {}
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.listener.remove_name();
    }
}

/// Reports progress to who waits; false where nobody does any more, or the server stops.
fn reporting(stream: &UnixStream, asked: &Asked) -> impl Fn(u64, u64) -> bool + Sync {
    let progress = Reporting::new(stream, |done, total| {
        encode_line(&Reply::Progress(done, total)).to_vec()
    });
    move |done, total| is_wanted(asked) && progress.report(done, total)
}

/// Copies the room while it is served. Stops when nobody waits for it any more.
fn backup(
    server: &MetadataServer,
    room: &Path,
    target: &str,
    stream: &UnixStream,
    asked: &Asked,
) -> Result<Reply> {
    let target = path_from_hex(target)?;
    let storage = Brokered::new(stream, |step| encode_line(&Reply::Step(step)).to_vec())
        .map_err(|e| Error::failed(format!("admin socket: {e}")))?;
    let (storage, blame) = blamed(storage);
    let progress = reporting(stream, asked);
    // The command may be suspended, and the room is to be closed.
    let interrupt = || drop(stream.shutdown(std::net::Shutdown::Read));
    let report = server.backup(storage, &target, &progress, &interrupt);
    Ok(Reply::Backup(match report {
        Err(ServerError::Room(e)) => return Err(work::backup_failed(room, &target, e, &blame)),
        other => work::backup_reply(other.map_err(|e| refused(room, e))?),
    }))
}

/// Does what is asked about snapshots while the room is served. Stops when nobody waits for it any more.
fn snapshots(
    server: &MetadataServer,
    room: &Path,
    request: &control::Request,
    stream: &UnixStream,
    asked: &Asked,
) -> Result<Reply> {
    use control::Request as R;
    let report = reporting(stream, asked);
    // It keeps the room open, which is to be closed when the server stops.
    let progress = |done, total| server.is_serving() && report(done, total);
    let work = |open: &room::Room| work::carry_out(room, open, request, &progress);
    let changed = |change: &str| {
        let change = change.to_owned();
        server.change_snapshots(Some(Admin::SnapshotsChanged { change }), work)
    };
    if let Some(request) = sending::asked(request) {
        let request = request.map_err(|e| Error::room(room, e))?;
        let line = |step| encode_line(&Reply::Step(step)).to_vec();
        let sent = server.send_snapshot(|open, go_on| {
            let stops = || !go_on() || !is_wanted(asked);
            let progress = |done, total| go_on() && report(done, total);
            sending::send((room, open), &request, stream, line, &stops, &progress)
        });
        let reply = sent.map_err(|e| refused(room, e))??;
        return Ok(Reply::Snapshots(Box::new(reply)));
    }
    let done = match request {
        R::Snapshots {}
        | R::SnapshotOfMoment { .. }
        | R::Info {}
        | R::DiffSnapshots { .. }
        | R::Removed { .. }
        | R::SnapshotPolicy {}
        | R::PruneSnapshots { dry_run: true } => server.with_snapshots(work),
        R::CreateSnapshot { .. } => changed("create"),
        R::RenameSnapshot { .. } => changed("rename"),
        R::DeleteSnapshot { .. } => changed("delete"),
        R::PruneSnapshots { dry_run: false } => changed("prune"),
        R::SetSnapshotPolicy { .. } => changed("policy"),
        _ => return Err(Error::usage("not a request about snapshots")),
    };
    let reply = done.map_err(|e| refused(room, e))??;
    Ok(Reply::Snapshots(Box::new(reply)))
}

/// Work that is not bounded in time.
fn answer_later(
    name: &str,
    stream: &UnixStream,
    work: impl FnOnce(&UnixStream) -> Result<Reply> + Send + 'static,
) -> std::io::Result<()> {
    let stream = stream.try_clone()?;
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(move || {
        let reply = work(&stream).unwrap_or_else(refusal);
        // A client that has gone does not need the answer.
        let _ = (&stream).write_all(&encode_line(&reply));
    })?;
    Ok(())
}

fn refusal(e: Error) -> Reply {
    Reply::Refused {
        exit: e.exit().code(),
        message: e.to_string(),
    }
}

fn answer(stream: &UnixStream, room: &Path, asked: &Asked) -> std::io::Result<()> {
    socket::admit(stream, LINE_TIME)?;
    let request = socket::read_line(stream, LINE_MAX, LINE_TIME)?;
    let server = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let reply = match (serde_json::from_slice(&request), server) {
        (Ok(Request::Backup { target }), Some(server)) => {
            let (room, asked) = (room.to_owned(), asked.clone());
            return answer_later("backup", stream, move |stream| {
                backup(&server, &room, &target, stream, &asked)
            });
        }
        (Ok(Request::Snapshots { request }), Some(server)) => {
            let (room, asked) = (room.to_owned(), asked.clone());
            return answer_later("snapshots", stream, move |stream| {
                snapshots(&server, &room, &request, stream, &asked)
            });
        }
        (Ok(Request::PutBack(what)), Some(server)) => {
            let (room, asked) = (room.to_owned(), asked.clone());
            return answer_later("restore", stream, move |stream| {
                let progress = reporting(stream, &asked);
                restores::put_back(&server, &room, &what, &progress).map(Reply::Restored)
            });
        }
        (Ok(request), Some(server)) => {
            carry_out(&server, request).unwrap_or_else(|e| refusal(refused(room, e)))
        }
        (Err(_), _) => refusal(Error::usage("not a request of this version")),
        (_, None) => refusal(Error::failed("the metadata server stops")),
    };
    (&mut &*stream).write_all(&encode_line(&reply))
}
