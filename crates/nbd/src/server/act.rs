//! What a request asks for, done to a device.
//!
//! 1. Nothing of a request reaches the device before [`check`] found it sound: commands and flags that are known, ranges within
//!    the export, lengths within the limits.
//! 2. A flush, and a request with FUA, is answered after the device's own flush returned. Writes are answered after the
//!    device took them, so a flush covers everything that was answered before it came, on whatever connection.
//! 3. A hole is reported only where the device says that it reads as zeros.

use std::io;

use device::{Device, Extent, Zeroing};

use crate::export::Export;
use crate::proto::{
    ALLOCATION_ID, Command, Errno, Form, Head, PAYLOAD_MAX, RequestHead, chunk, cmd_flag, state,
};

/// In reads of at least this many bytes holes are looked for.
const SPARSE_READ_MIN: u64 = 64 << 10;
/// The smallest hole, in bytes, that a read reports as a hole; less is sent as data.
const HOLE_MIN: u64 = 32 << 10;
/// Most ranges in one answer to `BLOCK_STATUS`.
const RANGES_MAX: usize = 4096;
/// The longest range that 32 bits hold, in whole pages.
const RANGE_MAX_32: u64 = u32::MAX as u64 & !4095;

/// Why a request is refused: the error that the client gets.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) words: String,
}

impl Refusal {
    pub(crate) fn new(errno: Errno, words: &str) -> Self {
        Self {
            errno,
            words: words.into(),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self {
            errno: Errno::of(&error),
            words: error.to_string(),
        }
    }
}

/// A part of a read's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) zeros: bool,
}

/// Whether a request may be done.
pub(crate) fn check(
    request: &RequestHead,
    export: &Export,
    form: Form,
    allocation: bool,
) -> Result<(), Refusal> {
    let invalid = |words| Err(Refusal::new(Errno::Invalid, words));
    let size = export.device.len();
    let inside = request
        .offset
        .checked_add(request.len)
        .is_some_and(|end| end <= size);
    let (known, changes) = match request.command {
        Command::Read if form > Form::Simple => (cmd_flag::DF, false),
        Command::Read | Command::Flush | Command::Cache | Command::Disconnect => (0, false),
        Command::Write if form == Form::Extended => (cmd_flag::PAYLOAD_LEN, true),
        Command::Write | Command::Trim => (0, true),
        Command::WriteZeroes => (cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO, true),
        Command::BlockStatus => (cmd_flag::REQ_ONE, false),
        Command::Other(_) => return invalid("there is no such command here"),
    };
    // FUA is allowed with every command.
    if request.flags & !(known | cmd_flag::FUA) != 0 {
        return invalid("a flag that the command does not have");
    }
    if changes && export.is_read_only() {
        return Err(Refusal::new(Errno::Permission, "the export is read-only"));
    }
    match request.command {
        Command::Flush | Command::Disconnect if request.offset != 0 || request.len != 0 => {
            invalid("this command has no range")
        }
        Command::Write | Command::WriteZeroes if !inside => {
            Err(Refusal::new(Errno::NoSpace, "the range leaves the export"))
        }
        _ if !inside => invalid("the range leaves the export"),
        Command::Read if request.len > u64::from(PAYLOAD_MAX) => {
            Err(Refusal::new(Errno::Overflow, "a read is 32 MiB at most"))
        }
        Command::BlockStatus if !allocation => invalid("no metadata context was chosen"),
        Command::BlockStatus if request.len == 0 => invalid("the range is empty"),
        _ => Ok(()),
    }
}

/// Does what changes the device or only asks it something, without an answer but that it was done.
pub(crate) fn change(request: &RequestHead, export: &Export, payload: &[u8]) -> io::Result<()> {
    let device = &*export.device;
    let (offset, len) = (request.offset, request.len);
    match request.command {
        Command::Write => device.write_at(payload, offset)?,
        Command::Flush => return device.flush(),
        Command::Trim if len > 0 => device.discard(offset, len)?,
        Command::Cache if len > 0 => return device.prefetch(offset, len),
        Command::WriteZeroes if len > 0 => {
            let how = Zeroing {
                keep_space: request.has(cmd_flag::NO_HOLE),
                only_fast: request.has(cmd_flag::FAST_ZERO),
            };
            device.zero(offset, len, how)?;
        }
        _ => (),
    }
    let changed = matches!(
        request.command,
        Command::Write | Command::Trim | Command::WriteZeroes
    );
    if changed && request.has(cmd_flag::FUA) {
        device.flush()?;
    }
    Ok(())
}

/// Reads what was asked for into `out`. The runs that it consists of; bytes of `out` within runs of zeros are left alone.
pub(crate) fn read(
    request: &RequestHead,
    export: &Export,
    form: Form,
    out: &mut [u8],
) -> io::Result<Vec<Run>> {
    let device = &*export.device;
    let whole = form == Form::Simple || request.has(cmd_flag::DF) || request.len < SPARSE_READ_MIN;
    let runs = if whole {
        Vec::new()
    } else {
        runs(device, request.offset, request.len)?
    };
    if runs.len() <= 1 && runs.first().is_none_or(|run| !run.zeros) {
        device.read_at(out, request.offset)?;
        return Ok(Vec::new());
    }
    let mut at = 0;
    for run in &runs {
        // Within the length, which is at most 32 MiB.
        let len = run.len as usize;
        if !run.zeros {
            device.read_at(&mut out[at..at + len], request.offset + at as u64)?;
        }
        at += len;
    }
    Ok(runs)
}

/// A range as runs of data and of zeros worth reporting.
fn runs(device: &dyn Device, offset: u64, len: u64) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut done = 0;
    while done < len {
        let extent = checked_status(device, offset + done, len - done)?;
        let zeros = extent.zeros && extent.len >= HOLE_MIN.min(len);
        match runs.last_mut() {
            Some(last) if last.zeros == zeros => last.len += extent.len,
            _ => runs.push(Run {
                len: extent.len,
                zeros,
            }),
        }
        done += extent.len;
    }
    Ok(runs)
}

/// What the device knows; a device that breaks its promise must not make us loop.
fn checked_status(device: &dyn Device, offset: u64, len: u64) -> io::Result<Extent> {
    let extent = device.status(offset, len)?;
    if (1..=len).contains(&extent.len) {
        Ok(extent)
    } else {
        Ok(Extent::data(len))
    }
}

/// The payload of an answer to `BLOCK_STATUS`, and its chunk's type.
pub(crate) fn status(
    request: &RequestHead,
    export: &Export,
    form: Form,
) -> io::Result<(u16, Vec<u8>)> {
    let extended = form == Form::Extended;
    let ranges_max = if request.has(cmd_flag::REQ_ONE) {
        1
    } else {
        RANGES_MAX
    };
    let mut ranges: Vec<(u64, u32)> = Vec::new();
    let mut done = 0;
    // Ranges that continue each other are reported as one; queries are bounded as well as replies.
    for _ in 0..4 * RANGES_MAX {
        if done == request.len {
            break;
        }
        let offset = request.offset + done;
        let extent = checked_status(&*export.device, offset, request.len - done)?;
        let mut flags = 0;
        if !extent.allocated {
            flags |= state::HOLE;
        }
        if extent.zeros {
            flags |= state::ZERO;
        }
        let full = ranges.len() == ranges_max;
        match ranges.last_mut() {
            Some((len, last)) if *last == flags => *len += extent.len,
            _ if full => break,
            _ => ranges.push((extent.len, flags)),
        }
        done += extent.len;
    }
    let mut out = Vec::with_capacity(8 + ranges.len() * 16);
    out.extend_from_slice(&ALLOCATION_ID.to_be_bytes());
    if extended {
        // At most RANGES_MAX.
        out.extend_from_slice(&(ranges.len() as u32).to_be_bytes());
        for (len, flags) in ranges {
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&u64::from(flags).to_be_bytes());
        }
        return Ok((chunk::BLOCK_STATUS_EXT, out));
    }
    for (len, flags) in ranges {
        let reported = len.min(RANGE_MAX_32);
        out.extend_from_slice(&(reported as u32).to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
        if reported < len {
            break;
        }
    }
    Ok((chunk::BLOCK_STATUS, out))
}

/// That a request was done, where nothing else is to be said.
pub(crate) fn acknowledgement(form: Form, request: &RequestHead) -> Head {
    match form {
        Form::Simple => Head::simple(request.cookie, 0),
        Form::Structured | Form::Extended => Head::chunk(form, request, chunk::NONE, true, 0),
    }
}

/// That a request was not done: the head, and the payload after it.
pub(crate) fn refusal(form: Form, request: &RequestHead, refusal: &Refusal) -> (Head, Vec<u8>) {
    let errno = refusal.errno as u32;
    if form == Form::Simple {
        return (Head::simple(request.cookie, errno), Vec::new());
    }
    // At most 256 bytes, of whole characters.
    let mut len = refusal.words.len().min(256);
    while !refusal.words.is_char_boundary(len) {
        len -= 1;
    }
    let mut payload = errno.to_be_bytes().to_vec();
    payload.extend_from_slice(&(len as u16).to_be_bytes());
    payload.extend_from_slice(&refusal.words.as_bytes()[..len]);
    let head = Head::chunk(form, request, chunk::ERROR, true, payload.len() as u32);
    (head, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were cut within a character, and strings of the protocol are UTF-8.
    #[test]
    fn long_words_of_a_refusal_end_with_a_whole_character() {
        let request = RequestHead {
            flags: 0,
            command: Command::Read,
            cookie: 1,
            offset: 0,
            len: 1,
        };
        let words = format!("x{}", "\u{e4}".repeat(200));
        let refused = Refusal::new(Errno::Io, &words);
        let (_, payload) = refusal(Form::Structured, &request, &refused);
        let sent = std::str::from_utf8(&payload[6..]).unwrap();
        assert!(words.starts_with(sent) && sent.len() == 255, "{sent}");
        assert_eq!(payload[4..6], [0, 255]);
    }
}
