//! The serving process's side of the control socket.

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use room::{Room, SendRequest};

use super::{
    Answer, Line, REQUEST_LINE_MAX, Reply, Request, SOCKET, Transport, encode_line, parse_request,
};
use crate::blamed::blamed;
use crate::broker::{self, Brokered};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::{path_from_hex, path_to_hex};
use crate::outlet::closing;
use crate::reporting::Reporting;
use crate::sending;
use crate::socket::{self, Listener};
use crate::work;

/// How long a client may take to send its request, and to take a line of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many clients are served at once; more are sent away.
const CLIENTS_MAX: usize = 32;
/// How long the kernel may take to end a mount that is in no table any more.
const ENDING: Duration = Duration::from_secs(1);
/// How often it is looked whether a client that waits for the end of the mount is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The mount, as far as requests concern it.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Whether the process can start no other programs.
    pub(crate) confined: bool,
    /// The snapshot that is mounted in the place of the room.
    pub(crate) snapshot: Option<String>,
    /// Name of the directory with the room's snapshots in it, if it has one.
    pub(crate) snapshots: Option<PathBuf>,
}

/// The room that requests are about, while it is open: of a mount that follows its writer, at the moment it shows.
pub(crate) struct RoomNow(Box<dyn Fn() -> Option<Arc<Room>> + Send + Sync>);

impl RoomNow {
    pub(crate) fn new(room: impl Fn() -> Option<Arc<Room>> + Send + Sync + 'static) -> Self {
        Self(Box::new(room))
    }

    pub(crate) fn of(room: &Arc<Room>) -> Self {
        let room = Arc::downgrade(room);
        Self::new(move || room.upgrade())
    }
}

impl std::fmt::Debug for RoomNow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RoomNow")
    }
}

impl State {
    /// Whether the mount was taken out of sight while files are open in it.
    fn is_detached(&self) -> bool {
        let is_out_of_sight = |(_, device): &(Transport, u64)| mount::is_out_of_sight(*device);
        self.detached.load(Ordering::Relaxed)
            || self.mounted.get().is_some_and(is_out_of_sight)
                && self.out_of_sight.get_or_init(Instant::now).elapsed() > ENDING
    }
}

/// The socket of a mounted room.
#[derive(Debug)]
pub(crate) struct Server {
    state: Arc<State>,
    listener: Arc<Listener>,
}

#[derive(Debug)]
struct State {
    /// Canonical path of the room's directory.
    dir: PathBuf,
    mountpoint: PathBuf,
    read_only: bool,
    /// Known once it is mounted, and its device number.
    mounted: OnceLock<(Transport, u64)>,
    /// When it was first found to be in no table of mounts although it goes on.
    out_of_sight: OnceLock<Instant>,
    mount: Mount,
    room: RoomNow,
    clients: AtomicUsize,
    /// Set when a client has taken the mount out of sight.
    detached: AtomicBool,
    /// Set when the room is about to be closed.
    stopping: AtomicBool,
    /// How closing the room ended, once it has.
    closed: Mutex<Option<Answer>>,
    closing: Condvar,
}

impl Server {
    /// Binds the socket and starts to answer. The caller holds the room's lock, so a socket already there is a leftover.
    pub(crate) fn start(
        dir: &Path,
        mountpoint: &Path,
        read_only: bool,
        mount: Mount,
        room: RoomNow,
    ) -> std::io::Result<Server> {
        let listener = Arc::new(Listener::bind(dir, SOCKET)?);
        let state = Arc::new(State {
            dir: dir.to_owned(),
            mountpoint: mountpoint.to_owned(),
            read_only,
            mounted: OnceLock::new(),
            out_of_sight: OnceLock::new(),
            mount,
            room,
            clients: AtomicUsize::new(0),
            detached: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            closed: Mutex::new(None),
            closing: Condvar::new(),
        });
        let (accepting, on) = (state.clone(), listener.clone());
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || accept(&on, &accepting))?;
        Ok(Server { state, listener })
    }

    /// The room is mounted with this device number, and the kernel's requests come like this.
    pub(crate) fn mounted(&self, transport: Transport, device: u64) {
        // A mount keeps both to its end.
        let _ = self.state.mounted.set((transport, device));
    }

    /// Reports to waiting clients how closing the room ended, and gives them a moment to hear it.
    pub(crate) fn closed(&self, result: &Result<()>) {
        let answer = match result {
            Ok(()) => Answer::Done(Reply::Nothing),
            Err(e) => Answer::from(e),
        };
        *self
            .state
            .closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.state.closing.notify_all();
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.state.clients.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has whatever works on the room stop at its next safe point.
    pub(crate) fn stop_work(&self) {
        self.state.stopping.store(true, Ordering::Relaxed);
    }

    /// Removes the socket's name. Called while the room's lock is still held, so it cannot be another's.
    pub(crate) fn remove_name(&self) {
        self.listener.remove_name();
    }
}

fn accept(listener: &Listener, state: &Arc<State>) {
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(e) => {
                tracing::warn!("control socket: {e}");
                // Out of file descriptors, mostly: trying again at once would only burn the processor.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if let Err(e) = socket::admit(&stream, CLIENT_TIMEOUT) {
            tracing::warn!("control socket: {e}");
            continue;
        }
        if state.clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            state.clients.fetch_sub(1, Ordering::AcqRel);
            send_away(&stream, state);
            continue;
        }
        let served = state.clone();
        let thread = std::thread::Builder::new()
            .name("control client".into())
            .spawn(move || {
                let counted = Counted(&served);
                serve(stream, counted.0);
            });
        if let Err(e) = thread {
            state.clients.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("control socket: {e}");
        }
    }
}

/// Answers a client for whom there is no place, without waiting for its request.
fn send_away(mut stream: &UnixStream, state: &State) {
    tracing::warn!(
        "control socket: {CLIENTS_MAX} commands wait for an answer; another one was sent away"
    );
    let answer = Answer::from(&Error::failed(format!(
        "{}: {CLIENTS_MAX} commands wait for the process that has the room mounted: try again when one of them has ended",
        state.dir.display()
    )));
    let _ = stream.write_all(&encode_line(&Line::Answer(answer)));
}

/// Takes the client off the count however its thread ends.
struct Counted<'a>(&'a State);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(mut stream: UnixStream, state: &State) {
    let answer = match read_request(&stream) {
        Ok(request) => {
            tracing::debug!("control request {request:?}");
            answer(&request, state, &stream)
        }
        Err(e) => Answer::from(&e),
    };
    // A client that has gone does not need its answer.
    let _ = stream.write_all(&encode_line(&Line::Answer(answer)));
}

fn read_request(stream: &UnixStream) -> Result<Request> {
    let bad = |message: String| Error::usage(format!("control socket: {message}"));
    let line = socket::read_line(stream, REQUEST_LINE_MAX, CLIENT_TIMEOUT)
        .map_err(|e| bad(e.to_string()))?;
    parse_request(&line).map_err(|e| bad(e.to_string()))
}

fn answer(request: &Request, state: &State, stream: &UnixStream) -> Answer {
    match request {
        Request::Status {} => Answer::Done(Reply::Status {
            pid: std::process::id(),
            mountpoint: path_to_hex(&state.mountpoint),
            read_only: state.read_only,
            transport: state.mounted.get().map(|(transport, _)| *transport),
            snapshot: state.mount.snapshot.clone(),
            snapshots: state.mount.snapshots.as_deref().map(path_to_hex),
            detached: state.is_detached(),
        }),
        Request::Detached {} => {
            state.detached.store(true, Ordering::Relaxed);
            Answer::Done(Reply::Nothing)
        }
        Request::AwaitClose {} => {
            // Who waits unmounts as soon as this is heard: a process that ends answers nobody whom it did not take up.
            let mut first = stream;
            let _ = first.write_all(&encode_line(&Line::Progress(0, 0)));
            let mut closed = state.closed.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(answer) = &*closed {
                    return answer.clone();
                }
                // An `umount` that was refused, or stopped: its place is another client's.
                if socket::has_left(stream) {
                    return Answer::Done(Reply::Nothing);
                }
                let waited = state.closing.wait_timeout(closed, LOOK_INTERVAL);
                closed = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        request => {
            let Some(room) = (state.room.0)() else {
                return Answer::from(&Error::said(
                    Exit::NotMounted,
                    "the room is being unmounted",
                ));
            };
            let progress = Reporting::new(stream, |done, total| {
                encode_line(&Line::Progress(done, total)).to_vec()
            });
            let stops = || state.stopping.load(Ordering::Relaxed);
            let report = |done, total| !stops() && progress.report(done, total);
            if state.mount.confined && work::needs_plugin(&room, request) {
                return Answer::from(&Error::failed_at(
                    &state.dir,
                    "this takes an age plugin, which the confined process of the mount cannot start: unmount the room first",
                ));
            }
            outcome(match request {
                Request::Backup { target } => backup(&room, state, target, stream, &report),
                request => match sending::asked(request) {
                    Some(asked) => asked
                        .map_err(|e| Error::room(&state.dir, e))
                        .and_then(|asked| send(&room, state, &asked, stream, &report)),
                    None => work::carry_out(&state.dir, &room, request, &report),
                },
            })
        }
    }
}

/// Copies the room to a directory that only the client may reach.
fn backup(
    room: &Room,
    state: &State,
    target: &str,
    stream: &UnixStream,
    progress: work::Progress<'_>,
) -> Result<Reply> {
    let target = path_from_hex(target)?;
    let line = |step| encode_line(&Line::Step(step)).to_vec();
    let storage =
        Brokered::new(stream, line).map_err(|e| Error::failed(format!("control socket: {e}")))?;
    let (storage, blame) = blamed(storage);
    let stops = || state.stopping.load(Ordering::Relaxed);
    let done = broker::waiting_unless(&stops, stream, || {
        room.backup_through(storage, &target, progress)
    });
    match done {
        Ok(report) => Ok(Reply::Backup(work::backup_reply(report))),
        // Whatever the step said that did not wait for the command.
        Err(room::Error::Io(e)) if stops() && e.kind() != ErrorKind::Interrupted => {
            Err(Error::room(&state.dir, closing().into()))
        }
        Err(e) => Err(work::backup_failed(&state.dir, &target, e, &blame)),
    }
}

/// Writes a snapshot to a pipe of the client's, with a directory of the client's for what is collected.
fn send(
    room: &Room,
    state: &State,
    request: &SendRequest,
    stream: &UnixStream,
    progress: work::Progress<'_>,
) -> Result<Reply> {
    let stops = || state.stopping.load(Ordering::Relaxed);
    let line = |step| encode_line(&Line::Step(step)).to_vec();
    sending::send((&state.dir, room), request, stream, line, &stops, progress)
}

fn outcome(result: Result<Reply>) -> Answer {
    match result {
        Ok(reply) => Answer::Done(reply),
        Err(e) => Answer::from(&e),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;
    use crate::control::client::Client;
    use crate::socket::Trust;

    fn server_in(dir: &Path) -> Server {
        let mount = Mount {
            confined: false,
            snapshot: None,
            snapshots: None,
        };
        Server::start(dir, dir, false, mount, RoomNow::new(|| None)).unwrap()
    }

    /// The first line of the answer to a request; empty: there was none.
    fn first_line(dir: &Path, request: &Request) -> (String, UnixStream) {
        let stream = socket::connect(dir, SOCKET, Trust::OwnUser).unwrap();
        // Who was sent away may notice it here, or there.
        let _ = (&stream).write_all(&encode_line(request));
        let mut line = String::new();
        let _ = BufReader::new(&stream).read_line(&mut line);
        (line, stream)
    }

    /// What failed: each `umount` of a mount in use left a thread behind that waited for the end of the mount, and after as many as there
    /// may be clients at once nobody was answered any more.
    #[test]
    fn who_waited_for_the_end_and_left_takes_no_place() {
        let dir = tempfile::tempdir().unwrap();
        let server = server_in(dir.path());
        let deadline = Instant::now() + Duration::from_secs(60);
        for _ in 0..2 * CLIENTS_MAX {
            // Those that left are noticed in a while.
            while !first_line(dir.path(), &Request::AwaitClose {})
                .0
                .contains("progress")
            {
                assert!(Instant::now() < deadline, "nobody is answered any more");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        server.remove_name();
    }

    /// The command said that the process had ended without an answer, and its log said nothing.
    #[test]
    fn a_client_for_whom_there_is_no_place_hears_why() {
        let dir = tempfile::tempdir().unwrap();
        let server = server_in(dir.path());
        let waiting: Vec<_> = (0..CLIENTS_MAX)
            .map(|_| first_line(dir.path(), &Request::AwaitClose {}))
            .collect();
        assert!(waiting.iter().all(|(line, _)| line.contains("progress")));
        let refused = Client::find(dir.path()).unwrap_err();
        assert!(refused.to_string().contains("try again"), "{refused}");
        server.remove_name();
    }

    #[test]
    fn who_waits_for_the_end_hears_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let server = server_in(dir.path());
        let (_, waiting) = first_line(dir.path(), &Request::AwaitClose {});
        server.closed(&Ok(()));
        let mut line = String::new();
        BufReader::new(waiting).read_line(&mut line).unwrap();
        assert!(line.contains("nothing"), "{line}");
        server.remove_name();
    }
}
