//! The client's side of the control socket: one connection a request.

use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use room::SendRequest;

use super::{ANSWER_LINE_MAX, Line, Reply, Request, SOCKET, SentReply, Transport, encode_line};
use crate::broker::{Broker, Step};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hex::{name_from_hex, path_from_hex};
use crate::mounts::{self, Mount};
use crate::sending;
use crate::socket::{self, Trust, Unreachable};
use crate::work::{self, Progress};

/// A mounted room, as its serving process describes it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// The room's directory.
    pub(crate) room: PathBuf,
    /// The process that serves it.
    pub(crate) pid: u32,
    /// Where it says that the room is mounted: see [`Self::mount`].
    pub(crate) mountpoint: PathBuf,
    /// Whether it was mounted read-only.
    pub(crate) read_only: bool,
    /// How the kernel's requests come there.
    pub(crate) transport: Option<Transport>,
    /// The snapshot that is mounted in the place of the room.
    pub(crate) snapshot: Option<String>,
    /// Name of the directory with the snapshots in the mount, if it has one.
    pub(crate) snapshots: Option<PathBuf>,
    /// Whether the mount was taken out of sight while files were open in it.
    pub(crate) detached: bool,
}

/// How long the serving process may take to say who it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

impl Client {
    /// Finds the process that serves the room in `dir`; `None` if nobody answers there, which a socket left by a crash
    /// looks like too. A process of another user is refused, and nothing is sent to it.
    pub(crate) fn find(dir: &Path) -> Result<Option<Client>> {
        let stream = match connect(dir) {
            Ok(stream) => stream,
            Err(why) => return why.refusal(dir, "mounted").map_or(Ok(None), Err),
        };
        let asked = stream
            .set_read_timeout(Some(STATUS_TIMEOUT))
            .map_err(broken)
            .and_then(|()| send(&stream, &Request::Status {}))
            .and_then(|()| receive(stream, &|_, _| true, &unasked));
        let reply = match asked {
            Ok(reply) => reply,
            // It ended while we asked.
            Err(_) if matches!(connect(dir), Err(Unreachable::Nobody)) => return Ok(None),
            Err(e) => return Err(named(dir, e)),
        };
        match reply {
            Reply::Status {
                pid,
                mountpoint,
                read_only,
                transport,
                snapshot,
                snapshots,
                detached,
            } => Ok(Some(Client {
                room: dir.to_owned(),
                pid,
                mountpoint: path_from_hex(&mountpoint)?,
                read_only,
                transport,
                snapshot,
                snapshots: snapshots.as_deref().map(name_from_hex).transpose()?,
                detached,
            })),
            _ => Err(unexpected()),
        }
    }

    /// Its mount, if the kernel's table has one of this room and this user where the process says.
    pub(crate) fn mount(&self) -> Option<Mount> {
        mounts::strongroom_at(&self.mountpoint).filter(|mount| mounts::is_of(mount, &self.room))
    }

    /// Sends a request and waits for its answer, however long it takes.
    pub(crate) fn run(&self, request: &Request, progress: Progress<'_>) -> Result<Reply> {
        let Request::Backup { target } = request else {
            return self.start(request)?.finish(progress);
        };
        let target = path_from_hex(target)?;
        if self.serves(&target) {
            // It would wait for itself.
            return Err(Error::usage(format!(
                "{}: inside the room, which is mounted at {}; a backup cannot be inside the room",
                target.display(),
                self.mountpoint.display()
            )));
        }
        let pending = self.start(request)?;
        // The process has dropped all directories but the room's.
        let broker = work::backup_directory(&self.room, &target)?;
        let stream = pending.lines.get_ref().try_clone().map_err(broken)?;
        receive(pending.lines, progress, &|step| {
            broker.answer(step, &stream)
        })
        .map_err(|e| named(&self.room, e))
    }

    /// Whether a file or directory, there or to be made, is in its mount, by whatever path.
    fn serves(&self, path: &Path) -> bool {
        let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
        let above = path.ancestors().find_map(device);
        above.is_some() && above == device(&self.mountpoint)
    }

    /// Has a snapshot written to `out`; what is collected before it is in the directory `scratch`. As [`work::send`].
    pub(crate) fn send(
        &self,
        request: &SendRequest,
        scratch: &Path,
        out: &mut dyn Write,
        progress: Progress<'_>,
    ) -> Result<Option<SentReply>> {
        let ask = |broker: Broker| {
            let pending = self.start(&sending::asking(request))?;
            let stream = pending.lines.get_ref().try_clone().map_err(broken)?;
            receive(pending.lines, progress, &|step| {
                broker.answer(step, &stream)
            })
            .map_err(|e| named(&self.room, e))
        };
        match sending::receive(&self.room, scratch, out, ask)? {
            Reply::Sent(sent) => Ok(sent),
            _ => Err(unexpected()),
        }
    }

    /// Sends a request; its answer is waited for later.
    pub(crate) fn start(&self, request: &Request) -> Result<Pending<'_>> {
        let stream = connect(&self.room).map_err(|why| {
            why.refusal(&self.room, "mounted").unwrap_or_else(|| {
                Error::said_at(
                    Exit::NotMounted,
                    &self.room,
                    "the mount has ended meanwhile",
                )
            })
        })?;
        send(&stream, request).map_err(|e| named(&self.room, e))?;
        Ok(Pending {
            room: &self.room,
            heard: Vec::new(),
            lines: BufReader::new(stream),
        })
    }
}

/// A request whose answer is still to come. Dropping it notifies the other side that nobody waits any more.
#[derive(Debug)]
pub(crate) struct Pending<'c> {
    room: &'c Path,
    /// What came already.
    heard: Vec<u8>,
    lines: BufReader<UnixStream>,
}

impl Pending<'_> {
    /// Waits until the other side has taken the request up, which it says with a first line; one that does not say so is waited for
    /// some seconds.
    pub(crate) fn accepted(&mut self) -> Result<()> {
        let wait = |lines: &BufReader<UnixStream>, time| {
            lines.get_ref().set_read_timeout(time).map_err(broken)
        };
        wait(&self.lines, Some(STATUS_TIMEOUT))?;
        // The wait for the answer finds the error again.
        let _ = self
            .lines
            .by_ref()
            .take(ANSWER_LINE_MAX as u64)
            .read_until(b'\n', &mut self.heard);
        wait(&self.lines, None)
    }

    /// Waits for the answer.
    pub(crate) fn finish(self, progress: Progress<'_>) -> Result<Reply> {
        receive(
            Cursor::new(self.heard).chain(self.lines),
            progress,
            &unasked,
        )
        .map_err(|e| named(self.room, e))
    }
}

/// The answer is of another kind than the request asks for: both programs are ours, but may be of different versions.
pub(crate) fn unexpected() -> Error {
    Error::failed(
        "the process that serves the mount answers something else: is it of another version? Unmount, and mount again",
    )
}

fn named(dir: &Path, error: Error) -> Error {
    match error {
        Error::Said { exit, message } if !message.starts_with(&*dir.to_string_lossy()) => {
            Error::Said {
                exit,
                message: format!("{}: {message}", dir.display()),
            }
        }
        other => other,
    }
}

fn connect(dir: &Path) -> std::result::Result<UnixStream, Unreachable> {
    socket::connect(dir, SOCKET, Trust::OwnUser)
}

fn send(mut stream: &UnixStream, request: &Request) -> Result<()> {
    match stream.write_all(&encode_line(request)) {
        // The other side may have said why it reads nothing.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        sent => sent.map_err(broken),
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::failed(match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            "the process that serves the mount does not answer: it may be suspended (SIGSTOP)"
                .into()
        }
        _ => format!("control socket: {error}"),
    })
}

/// No directory was named to the other side.
pub(crate) fn unasked(_step: &Step) -> std::io::Result<()> {
    Err(std::io::ErrorKind::InvalidData.into())
}

/// Reads what the other side sends, up to its answer. `act` does what it asks for on the way.
pub(crate) fn receive(
    stream: impl Read,
    progress: Progress<'_>,
    act: &dyn Fn(&Step) -> std::io::Result<()>,
) -> Result<Reply> {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        lines
            .by_ref()
            .take(ANSWER_LINE_MAX as u64)
            .read_until(b'\n', &mut line)
            .map_err(broken)?;
        if !line.ends_with(b"\n") {
            return Err(Error::failed(
                "the process that serves the mount ended without an answer; its log says why",
            ));
        }
        match serde_json::from_slice(&line).map_err(|_| unexpected())? {
            Line::Progress(done, total) => {
                // Closing the connection is how the other side learns that it shall stop.
                if !progress(done, total) {
                    return Err(Error::said(
                        Exit::Interrupted,
                        "stopped; what was done so far is kept",
                    ));
                }
            }
            Line::Step(step) => match act(&step) {
                // It waits for no step any more, and says why.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
                done => done.map_err(broken)?,
            },
            Line::Answer(answer) => return answer.into_result(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Answer;

    /// What a request comes to whose other side sends these lines and ends.
    fn answered(lines: &[Line]) -> Result<Reply> {
        let (here, mut there) = UnixStream::pair().unwrap();
        for line in lines {
            there.write_all(&encode_line(line)).unwrap();
        }
        drop(there);
        let mut pending = Pending {
            room: Path::new("room"),
            heard: Vec::new(),
            lines: BufReader::new(here),
        };
        pending.accepted().unwrap();
        pending.finish(&|_, _| true)
    }

    /// What failed: of a process that was suspended, a command said "Resource temporarily unavailable".
    #[test]
    fn a_process_that_does_not_answer_in_time_is_reported_so() {
        let (here, _there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let unanswered = receive(&here, &|_, _| true, &unasked).unwrap_err();
        assert!(
            unanswered.to_string().contains("does not answer"),
            "{unanswered}"
        );
    }

    #[test]
    fn an_answer_is_found_whatever_was_heard_before_it() {
        let done = || Line::Answer(Answer::Done(Reply::Nothing));
        for lines in [
            vec![Line::Progress(0, 0), done()],
            vec![done()],
            vec![Line::Progress(0, 0), Line::Progress(1, 2), done()],
        ] {
            assert!(matches!(answered(&lines), Ok(Reply::Nothing)), "{lines:?}");
        }
        assert!(answered(&[Line::Progress(0, 0)]).is_err());
        assert!(answered(&[]).is_err());
    }

    #[test]
    fn a_request_is_accepted_before_its_answer_is_there() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut pending = Pending {
            room: Path::new("room"),
            heard: Vec::new(),
            lines: BufReader::new(here),
        };
        there
            .write_all(&encode_line(&Line::Progress(0, 0)))
            .unwrap();
        pending.accepted().unwrap();
        there
            .write_all(&encode_line(&Line::Answer(Answer::Done(Reply::Nothing))))
            .unwrap();
        assert!(matches!(pending.finish(&|_, _| true), Ok(Reply::Nothing)));
    }
}
