//! A snapshot as a stream, from the process that has its room to the command that asked for it: both ends.
//!
//! The command opens a directory for what is collected, and a pipe, step by step as the process asks for them (see `broker`). It
//! deliberately does not know through which socket.

use std::io::{BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use room::{Keep, Room, SendRequest, SendScratch, Timestamp};

use crate::broker::{self, Broker, Brokered, Step};
use crate::error::{Error, Result};
use crate::outlet::{Outlet, closing};
use crate::wire::{Reply, Request};
use crate::work::{self, Progress};

/// What the process calls the command's directory: where that is it does not know.
const SCRATCH: &str = "the command's directory for temporary files (TMPDIR)";

/// A directory for what is collected, which goes with this.
pub(crate) fn scratch(request: &SendRequest) -> Result<SendScratch> {
    SendScratch::new(request.scratch.as_deref()).map_err(|e| Error::host(&std::env::temp_dir(), e))
}

/// How a process is asked.
pub(crate) fn asking(request: &SendRequest) -> Request {
    Request::Send {
        to: request.to.clone(),
        since: request.since.clone(),
        resume: request.resume.map(|token| token.to_string()),
        keep_since: request.keep.since.map(|at| (at.secs, at.nanos)),
        keep_periods: request.keep.periods,
    }
}

/// What a process is asked to send; `None` where it is asked for something else.
pub(crate) fn asked(request: &Request) -> Option<room::Result<SendRequest>> {
    let Request::Send {
        to,
        since,
        resume,
        keep_since,
        keep_periods,
    } = request
    else {
        return None;
    };
    let resume = resume.as_deref().map(str::parse).transpose();
    Some(resume.map(|resume| SendRequest {
        to: to.clone(),
        since: since.clone(),
        resume,
        keep: Keep {
            since: keep_since.map(|(secs, nanos)| Timestamp { secs, nanos }),
            periods: *keep_periods,
        },
        scratch: None,
    }))
}

/// The command's end: `ask` has the process write to the broker's pipe, and returns its answer. What comes goes to `out`.
pub(crate) fn receive(
    room: &Path,
    scratch: &Path,
    out: &mut dyn Write,
    ask: impl FnOnce(Broker) -> Result<Reply> + Send,
) -> Result<Reply> {
    let (mut read, write) = std::io::pipe().map_err(|e| Error::room(room, e.into()))?;
    let broker = Broker::with_output(scratch, OwnedFd::from(write).into());
    let broker = broker.map_err(|e| Error::host(scratch, e))?;
    let (answer, copied) = std::thread::scope(|scope| {
        // With what it has of the pipe: where the process ends without asking for it, that ends the stream.
        let asking = scope.spawn(move || ask(broker));
        let copied = std::io::copy(&mut read, out);
        // What cannot be written any more is not to be sent any more.
        drop(read);
        (asking.join(), copied)
    });
    let answer = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // Why nothing more could be written says more than that the pipe was closed.
    copied.map_err(|e| Error::room(room, e.into()))?;
    answer
}

/// The process's end. `line`: how a step is asked for on this connection; `stops`: whether to stop while nobody reads or answers.
pub(crate) fn send(
    (dir, room): (&Path, &Room),
    request: &SendRequest,
    stream: &UnixStream,
    line: fn(Step) -> Vec<u8>,
    stops: &(dyn Fn() -> bool + Sync),
    progress: Progress<'_>,
) -> Result<Reply> {
    let sent = broker::waiting_unless(stops, stream, || {
        send_to((dir, room), request, (stream, line), stops, progress)
    });
    match sent {
        Err(_) if stops() => Err(Error::room(dir, closing().into())),
        sent => sent,
    }
}

fn send_to(
    (dir, room): (&Path, &Room),
    request: &SendRequest,
    (stream, line): (&UnixStream, fn(Step) -> Vec<u8>),
    stops: &dyn Fn() -> bool,
    progress: Progress<'_>,
) -> Result<Reply> {
    let broken = |e| Error::failed(format!("the connection to the command: {e}"));
    let scratch = Brokered::new(stream, line).map_err(broken)?;
    let out = scratch.output().and_then(|pipe| Outlet::new(pipe, stops));
    let mut out = BufWriter::with_capacity(1 << 20, out.map_err(broken)?);
    let scratch = (scratch, Path::new(SCRATCH));
    let sent = work::send(dir, room, request, scratch, &mut out, progress)?;
    out.flush().map_err(broken)?;
    Ok(Reply::Sent(sent))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use room::{Argon2Cost, NewCredential, NewRoom, NewSnapshot, OpenOptions, Secret};

    use super::*;
    use crate::descriptors::encode_line;

    /// What failed: a suspended command kept the room, which was to be closed, for as long as a step may take: five minutes.
    #[test]
    fn a_command_that_does_not_answer_keeps_no_room_that_is_to_be_closed() {
        let dir = tempfile::tempdir().unwrap();
        let mut new = NewRoom::with_credential(NewCredential::Passphrase {
            secret: Secret::from(b"pass".to_vec()),
            cost: Argon2Cost::LEAST,
        });
        new.open = OpenOptions {
            state_dir: Some(dir.path().join("state")),
            ..OpenOptions::default()
        };
        let room = Room::create(&dir.path().join("room"), new).unwrap();
        room.create_snapshot("one", NewSnapshot::default()).unwrap();
        let (ended, end) = mpsc::channel();
        let (here, command) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let request = SendRequest {
                to: "one".into(),
                ..SendRequest::default()
            };
            let line = |step| encode_line(&step).to_vec();
            let place = (Path::new("room"), &room);
            let sent = send(place, &request, &here, line, &|| true, &|_, _| true);
            ended.send(sent.unwrap_err().to_string()).unwrap();
        });
        let said = end.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(said.contains("the room is being closed"), "{said}");
        drop(command);
    }
}
