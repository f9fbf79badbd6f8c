//! Doing requests that were received, and sending what came out.

use std::io;
use std::time::Instant;

use super::Shared;
use super::act::{self, Refusal, Run};
use super::connection::{Connection, Request, SMALL};
use super::metrics::add;
use crate::proto::{Command, Errno, Form, Head, RequestHead, chunk, cmd_flag};

/// Does a small read or write at once, and adds its answer to `answers`.
pub(super) fn inline_answer(
    connection: &Connection,
    head: &RequestHead,
    payload: &[u8],
    answers: &mut Vec<u8>,
) {
    let shared = &connection.shared;
    let export = &connection.agreed.export;
    let form = connection.form();
    let start = answers.len();
    let begun = Instant::now();
    let done = if head.command == Command::Read {
        let reply = data_head(form, head, true, head.offset, head.len as u32);
        answers.extend_from_slice(reply.bytes());
        let at = answers.len();
        answers.resize(at + head.len as usize, 0);
        export.device.read_at(&mut answers[at..], head.offset)
    } else {
        let done = act::change(head, export, payload);
        answers.extend_from_slice(act::acknowledgement(form, head).bytes());
        done
    };
    connection.pace.took(begun.elapsed());
    match done {
        Ok(()) => count(shared, head),
        Err(error) => {
            answers.truncate(start);
            let refusal = failed(connection, head, error);
            let (head, words) = act::refusal(form, head, &refusal);
            answers.extend_from_slice(head.bytes());
            answers.extend_from_slice(&words);
        }
    }
}

/// The head of a read's answer, or of a part of it.
fn data_head(form: Form, head: &RequestHead, done: bool, offset: u64, len: u32) -> Head {
    match form {
        Form::Simple => Head::simple(head.cookie, 0),
        // A chunk of data has at least a byte.
        _ if len == 0 => act::acknowledgement(form, head),
        _ => Head::data(form, head, done, offset, len),
    }
}

fn count(shared: &Shared, head: &RequestHead) {
    let counters = &shared.counters;
    counters.done(head.command);
    match head.command {
        Command::Read => add(&counters.bytes_read, head.len),
        Command::Write => add(&counters.bytes_written, head.len),
        _ => (),
    }
}

/// Says in the log that the device failed, and to the client why.
fn failed(connection: &Connection, head: &RequestHead, error: io::Error) -> Refusal {
    let export = &connection.agreed.export.name;
    let refusal = Refusal::from(error);
    if refusal.errno == Errno::NotSupported {
        tracing::debug!(export, command = ?head.command, "not supported");
    } else {
        let (offset, len) = (head.offset, head.len);
        tracing::warn!(export, command = ?head.command, offset, len, error = refusal.words, "a request failed");
    }
    add(&connection.shared.counters.failed, 1);
    refusal
}

/// Does a request and sends the reply. A failure to send ends the connection, which the receiving side sees.
pub(super) fn answer(connection: &Connection, request: &Request<'_>, buffer: &mut [u8]) {
    let shared = &connection.shared;
    let _in_flight = shared.in_flight();
    let head = &request.head;
    let (form, export) = (connection.form(), &connection.agreed.export);
    let send = |head: Head, payload: &[u8]| {
        let _ = connection
            .sender
            .send(&connection.wire, [head.bytes(), payload]);
    };
    let refuse = |refusal: &Refusal| {
        let (reply, words) = act::refusal(form, head, refusal);
        send(reply, &words);
    };
    if let Some(refusal) = &request.refused {
        add(&shared.counters.failed, 1);
        tracing::debug!(
            peer = connection.peer,
            ?head,
            words = refusal.words,
            "refused"
        );
        return refuse(refusal);
    }
    // Checked: at most 32 MiB where it is a payload or an answer.
    let len = head.len as usize;
    let begun = Instant::now();
    let small = head.len <= SMALL;
    match head.command {
        Command::Read => {
            let out = &mut buffer[..len];
            let done = act::read(head, export, form, out);
            if small {
                connection.pace.took(begun.elapsed());
            }
            match done {
                Ok(runs) => send_read(connection, head, out, &runs, &send),
                Err(error) => return refuse(&failed(connection, head, error)),
            }
        }
        Command::BlockStatus => match act::status(head, export, form) {
            // At most 64 KiB and a little.
            Ok((kind, out)) => send(Head::chunk(form, head, kind, true, out.len() as u32), &out),
            Err(error) => return refuse(&failed(connection, head, error)),
        },
        command => {
            let payload = match command {
                Command::Write => &buffer[..len],
                _ => &[],
            };
            let done = act::change(head, export, payload);
            if small && command == Command::Write && !head.has(cmd_flag::FUA) {
                connection.pace.took(begun.elapsed());
            }
            match done {
                Ok(()) => send(act::acknowledgement(form, head), &[]),
                Err(error) => return refuse(&failed(connection, head, error)),
            }
        }
    }
    count(shared, head);
}

/// Sends what was read: at once, or run by run where `runs` has holes.
fn send_read(
    connection: &Connection,
    head: &RequestHead,
    out: &[u8],
    runs: &[Run],
    send: &dyn Fn(Head, &[u8]),
) {
    let form = connection.form();
    if runs.is_empty() {
        // At most 32 MiB.
        let reply = data_head(form, head, true, head.offset, out.len() as u32);
        return send(reply, out);
    }
    let mut at = 0;
    for (i, run) in runs.iter().enumerate() {
        let done = i + 1 == runs.len();
        let offset = head.offset + at as u64;
        let (len, len_u32) = (run.len as usize, run.len as u32);
        if run.zeros {
            let mut hole = [0; 12];
            hole[..8].copy_from_slice(&offset.to_be_bytes());
            hole[8..].copy_from_slice(&len_u32.to_be_bytes());
            send(Head::chunk(form, head, chunk::OFFSET_HOLE, done, 12), &hole);
        } else {
            let reply = data_head(form, head, done, offset, len_u32);
            send(reply, &out[at..at + len]);
        }
        at += len;
    }
}
