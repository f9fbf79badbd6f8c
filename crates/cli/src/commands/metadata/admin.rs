//! What commands ask of a room's users and disks: of its running metadata server, through its socket, or of the room itself
//! where none runs.
//!
//! 1. The socket is its owner's alone (0600); only that user and root are answered. What goes over it may be secret: a
//!    disk's key, a user's. Root sends it also to a process of the user who owns the room's directory, which has the room's
//!    keys when it serves: a service has a user of its own.
//! 2. One request a connection, one line of JSON each way, bounded in length and time; an unknown field is an error.
//! 3. Both ways give the same answers.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metadata_proto::admin::{Quota, UserRow};
use metadata_server::audit::event::Admin;
use metadata_server::enrol::{self, Disk, EnrolError, User};
use metadata_server::server::{Beside, MetadataServer, ServerError};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::access::{Intent, OpenArgs};
use crate::broker::{Broker, Brokered, Step};
use crate::bucket;
use crate::control;
use crate::credentials::HexSecret;
use crate::descriptors::encode_line;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::path_from_hex;
use crate::mounting::remote;
use crate::place::must_be_room;
use crate::socket::{self, Listener, Trust};
use crate::work::{self, Progress};

/// The socket's name.
const SOCKET: &str = "metadata";
/// Longest line of a request, bytes.
const LINE_MAX: usize = 16 << 20;
/// For a line to be there.
const LINE_TIME: Duration = Duration::from_secs(10);
/// Longest line of an answer, bytes: what differs between two snapshots.
const ANSWER_MAX: usize = control::ANSWER_LINE_MAX;
/// For an answer: longer than a revocation waits for a disk.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// For an answer about snapshots, which may read all that was removed.
const SNAPSHOTS_TIME: Duration = Duration::from_secs(600);

/// Between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    Status {},
    AddUser {
        name: String,
        uid: u32,
        gids: Vec<u32>,
    },
    AddAdmin {
        name: String,
    },
    RenewUser {
        name: String,
        /// Serial number of the key that ends after the overlap.
        replaces: Option<[u8; 16]>,
        overlap_s: u64,
    },
    RotateAuthority {},
    StepDown {},
    FinishRotation {
        force: bool,
    },
    RemoveUser {
        name: String,
    },
    SetQuota {
        name: String,
        quota: Quota,
    },
    Users {},
    AddDisk {
        disk: Disk,
    },
    RemoveDisk {
        name: String,
    },
    Disks {},
    /// Copies the room; progress comes before the answer.
    Backup {
        /// Absolute path, in hexadecimal.
        target: String,
    },
    /// What is asked of an open room about its snapshots; progress may come before the answer.
    Snapshots {
        request: Box<control::Request>,
    },
}

/// A running server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) pid: u32,
    pub(crate) address: String,
    pub(crate) serving: bool,
    /// Another server has the room.
    #[serde(default)]
    pub(crate) standby: bool,
    pub(crate) connections: u64,
    pub(crate) sessions: Vec<(u64, String)>,
    pub(crate) opens: u64,
    // words.py: the JSON has this name
    #[serde(rename = "loans")]
    pub(crate) grants: u64,
    pub(crate) locks: u64,
    #[serde(rename = "capabilities_given")]
    pub(crate) capabilities_issued: u64,
    pub(crate) capabilities_revoked: u64,
    pub(crate) reopened: u64,
    pub(crate) disks: Vec<DiskRow>,
    /// Entries of the audit log; `None`: there is none.
    #[serde(default)]
    pub(crate) audit_entries: Option<u64>,
    /// It cannot be written.
    #[serde(default)]
    pub(crate) audit_failing: bool,
    /// How long keys of users, and the authority, are valid.
    pub(crate) lifetimes: Vec<enrol::Lifetime>,
}

/// A disk, without its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DiskRow {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) address: String,
    pub(crate) protection: String,
    /// `None`: nobody asked it.
    pub(crate) reachable: Option<bool>,
    pub(crate) bytes: u64,
    pub(crate) capabilities: usize,
    pub(crate) pending: usize,
    /// Bytes that are not free; 0 where nobody asked.
    pub(crate) used: u64,
    /// It is being emptied, and so many bytes of file data are left.
    pub(crate) leaving: Option<u64>,
    /// What is in the way of that.
    pub(crate) obstacle: Option<String>,
}

impl DiskRow {
    /// What is to be said of its removal, with `; ` before it; empty where it stays.
    pub(crate) fn removal(&self) -> String {
        let Some(left) = self.leaving else {
            return String::new();
        };
        let left = crate::output::size(left);
        match &self.obstacle {
            Some(what) => format!("; being emptied, {left} left, stopped: {what}"),
            None => format!("; being emptied, {left} left"),
        }
    }
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Done,
    Status(Box<Status>),
    Identity(HexSecret),
    /// Whether every disk has taken the rights away.
    Removed(bool),
    Users(Vec<UserRow>),
    Disks(Vec<DiskRow>),
    /// Bytes done, and in all; the answer is still to come.
    Progress(u64, u64),
    /// The command is to do this in the directory of a backup; the answer is still to come.
    Step(Step),
    Backup(control::BackupReply),
    Snapshots(Box<control::Reply>),
    /// So many bytes are moved away from a disk before it is gone; whether a server does that now.
    Leaving {
        left: u64,
        now: bool,
    },
    Refused {
        exit: u8,
        message: String,
    },
}

pub(super) fn protection(of: netdisk::Protection) -> String {
    format!("{of:?}").to_lowercase()
}

impl DiskRow {
    fn known(disk: &Disk) -> Self {
        Self {
            name: disk.name.clone(),
            id: disk.address.id.to_string(),
            address: disk.address.address.clone(),
            protection: protection(disk.address.protection),
            reachable: None,
            bytes: 0,
            capabilities: 0,
            pending: 0,
            used: 0,
            leaving: None,
            obstacle: None,
        }
    }

    fn running(disk: &metadata_server::authority::DiskState) -> Self {
        Self {
            name: disk.name.clone(),
            id: disk.address.id.to_string(),
            address: disk.address.address.clone(),
            protection: protection(disk.address.protection),
            reachable: Some(disk.reachable),
            bytes: disk.blocks * netdisk::BLOCK_LEN as u64,
            capabilities: disk.capabilities,
            pending: disk.pending,
            used: disk.used,
            leaving: disk.removal.as_ref().map(|removal| removal.left),
            obstacle: disk.removal.as_ref().and_then(|r| r.obstacle.clone()),
        }
    }
}

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
    let stream = match socket::connect(room, SOCKET, Trust::OwnerToo) {
        Ok(stream) => stream,
        // No socket, or one that a killed server left.
        Err(why) => return why.refusal(room, "served").map_or(Ok(None), Err),
    };
    let failed =
        |e: std::io::Error| Error::failed(format!("{}: its metadata server: {e}", room.display()));
    let time = match request {
        Request::Snapshots { .. } => SNAPSHOTS_TIME,
        _ => ANSWER_TIME,
    };
    let begin = || -> std::io::Result<()> {
        stream.set_read_timeout(Some(time))?;
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
                broker.answer(&step, &stream).map_err(failed)?;
            }
            _ => break answer,
        }
    };
    match serde_json::from_slice(&answer) {
        Ok(Reply::Refused { exit, message }) => Err(Error::said(Exit::from_code(exit), message)),
        Ok(reply) => Ok(Some(reply)),
        Err(_) => Err(Error::failed(format!(
            "{}: its metadata server answers something else: is it of another version? Restart it",
            room.display()
        ))),
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
        | Request::Snapshots { .. } => return Err(ServerError::NotNow),
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
            Reply::Removed(true)
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
        Request::Backup { .. } | Request::Snapshots { .. } => return Err(ServerError::NotNow),
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

/// The server's side of the socket; its name is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: Arc<Listener>,
    /// `None`: the server stops, and nobody is answered any more.
    server: Arc<Mutex<Option<Arc<MetadataServer>>>>,
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
                    if let Err(e) = answered {
                        tracing::warn!("admin socket: {e}");
                        std::thread::sleep(Duration::from_millis(10));
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

/// Reports progress to who waits; false where nobody does any more.
fn reporting(stream: &UnixStream) -> impl Fn(u64, u64) -> bool + Sync {
    let last = Mutex::new(None);
    move |done, total| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|at: Instant| at.elapsed() < PROGRESS_INTERVAL) {
            return true;
        }
        *last = Some(Instant::now());
        (&*stream)
            .write_all(&encode_line(&Reply::Progress(done, total)))
            .is_ok()
    }
}

/// Copies the room while it is served. Stops when nobody waits for it any more.
fn backup(
    server: &MetadataServer,
    room: &Path,
    target: &str,
    stream: &UnixStream,
) -> Result<Reply> {
    let target = path_from_hex(target)?;
    let storage = Brokered::new(stream, |step| encode_line(&Reply::Step(step)).to_vec())
        .map_err(|e| Error::failed(format!("admin socket: {e}")))?;
    let report = server.backup(Arc::new(storage), &target, &reporting(stream));
    Ok(Reply::Backup(match report {
        Err(ServerError::Room(e)) => return Err(work::backup_failed(room, &target, e)),
        other => work::backup_reply(other.map_err(|e| refused(room, e))?),
    }))
}

/// Does what is asked about snapshots while the room is served. Stops when nobody waits for it any more.
fn snapshots(
    server: &MetadataServer,
    room: &Path,
    request: &control::Request,
    stream: &UnixStream,
) -> Result<Reply> {
    use control::Request as R;
    let report = reporting(stream);
    // It keeps the room open, which is to be closed when the server stops.
    let progress = |done, total| server.is_serving() && report(done, total);
    let work = |open: &room::Room| work::carry_out(room, open, request, &progress);
    let changed = |change: &str| {
        let change = change.to_owned();
        server.change_snapshots(Some(Admin::SnapshotsChanged { change }), work)
    };
    let done = match request {
        R::Snapshots {}
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

fn answer(
    stream: &UnixStream,
    room: &Path,
    server: &Mutex<Option<Arc<MetadataServer>>>,
) -> std::io::Result<()> {
    socket::admit(stream, LINE_TIME)?;
    let request = socket::read_line(stream, LINE_MAX, LINE_TIME)?;
    let server = server
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let reply = match (serde_json::from_slice(&request), server) {
        (Ok(Request::Backup { target }), Some(server)) => {
            let room = room.to_owned();
            return answer_later("backup", stream, move |stream| {
                backup(&server, &room, &target, stream)
            });
        }
        (Ok(Request::Snapshots { request }), Some(server)) => {
            let room = room.to_owned();
            return answer_later("snapshots", stream, move |stream| {
                snapshots(&server, &room, &request, stream)
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
