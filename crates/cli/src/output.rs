//! What the command prints: plain lines for people, JSON lines for programs, messages and failures on standard error.
//!
//! 1. Standard output carries only what was asked for; everything else goes to standard error.
//! 2. With `--json` every reported thing is one JSON object on one line; field names do not change.
//! 3. Nobody has to read what is printed: a reader that has gone changes neither what a command does nor its exit code. Only what
//!    was asked for to be read, and nothing else ([`bytes`], [`entry`]), ends where its reader does.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use room::{FileKind, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::error::Error;
use crate::exit::Exit;
use crate::hex::hex;
pub use crate::stderr::to_stderr;
use crate::tree::Meta;
pub(crate) use crate::words::{
    count, device, end, kind_word, mode_letters, moment, now, quoted, shown, shown_path, size,
};

/// Whether a line was lost that somebody may have waited for.
static IS_LOST: AtomicBool = AtomicBool::new(false);

fn write(data: &[u8]) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(data)?;
    stdout.flush()
}

/// Standard output did not take what was asked for.
pub(crate) fn not_written(e: std::io::Error) -> Error {
    Error::host(Path::new("standard output"), e)
}

/// Writes to standard output, by a command that does nothing else: a reader that has gone (`| head`) ends the program quietly, any
/// other error ends it too.
pub fn bytes(data: &[u8]) {
    if let Err(e) = write(data) {
        if e.kind() == ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let error = not_written(e);
        to_stderr(format_args!("strongroom: {error}"));
        std::process::exit(i32::from(error.exit().code()));
    }
}

/// Writes a line to standard output, as [`bytes`] does.
pub fn entry(text: impl AsRef<str>) {
    bytes(format!("{}\n", text.as_ref()).as_bytes());
}

/// Writes a JSON object as a line, as [`bytes`] does.
pub fn json_entry(value: &impl Serialize) {
    entry(json_text(value));
}

/// Writes a line to standard output. The command goes on where that fails: it may be in the middle of its work. An error other than
/// a reader that has gone is reported once, and [`crate::program::end`] has the exit code.
pub fn line(text: impl AsRef<str>) {
    if let Err(e) = write(format!("{}\n", text.as_ref()).as_bytes())
        && e.kind() != ErrorKind::BrokenPipe
        && !IS_LOST.swap(true, Ordering::Relaxed)
    {
        to_stderr(format_args!("strongroom: {}", not_written(e)));
    }
}

/// Whether a [`line`] was lost.
pub(crate) fn is_lost() -> bool {
    IS_LOST.load(Ordering::Relaxed)
}

/// Writes a JSON object as a line.
pub fn json_line(value: &impl Serialize) {
    line(json_text(value));
}

fn json_text(value: &impl Serialize) -> String {
    // Our own reports have text for keys and cannot fail.
    serde_json::to_string(value).expect("our own reports are JSON")
}

/// Says something that is not a result, unless asked to be quiet.
pub fn note(global: &Global, text: impl AsRef<str>) {
    if !global.quiet {
        to_stderr(text.as_ref());
    }
}

/// Reports what was done: an object with `--json`, a note else.
pub fn done(global: &Global, value: Value, text: impl AsRef<str>) {
    match global.json {
        true => json_line(&value),
        false => note(global, text),
    }
}

/// Reports a failure.
pub fn report(error: &Error, global: &Global) {
    if error.is_reported() {
        return;
    }
    if global.json {
        let value = json!({"error": error.to_string(), "exit": error.exit().code()});
        to_stderr(value);
    } else {
        to_stderr(format_args!("strongroom: {error}"));
    }
}

/// Failures of single files: reported at once, remembered for the end.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: u64,
    worst: Option<Exit>,
}

impl Failures {
    pub(crate) fn note(&mut self, error: &Error, global: &Global) {
        report(error, global);
        self.count += 1;
        // Damage and a full disk say more than anything else that failed.
        let exit = error.exit();
        if self.worst.is_none_or(|worst| {
            worst == Exit::Failed || (exit == Exit::Damaged && worst != Exit::NoSpace)
        }) {
            self.worst = Some(exit);
        }
    }

    /// Takes over what another list has, already reported.
    pub(crate) fn absorb(&mut self, other: Failures) {
        self.count += other.count;
        if self.worst.is_none_or(|worst| worst == Exit::Failed) {
            self.worst = other.worst.or(self.worst);
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// The command's own result.
    pub(crate) fn end(self) -> crate::error::Result<()> {
        match self.worst {
            Some(exit) => Err(Error::Several {
                exit,
                count: self.count,
            }),
            None => Ok(()),
        }
    }
}

/// A file as JSON: the fields of `ls`, `stat` and `tree`.
pub(crate) fn file_json(name: &OsStr, meta: &Meta, target: Option<&OsStr>) -> Value {
    let time = |t: Timestamp| json!({"secs": t.secs, "nanos": t.nanos});
    let mut value = json!({
        "name": name.to_string_lossy(),
        "kind": kind_word(meta.kind),
        "mode": format!("{:04o}", meta.mode),
        "uid": meta.uid,
        "gid": meta.gid,
        "links": meta.nlink,
        "size": meta.size,
        "allocated": meta.allocated,
        "inode": meta.id.1,
        "modified": time(meta.mtime),
        "accessed": time(meta.atime),
        "changed": time(meta.ctime),
    });
    if let Some(birth) = meta.btime {
        value["born"] = time(birth);
    }
    // A name that is not text is reported exactly as well.
    if name.to_str().is_none() {
        value["name_hex"] = hex(name.as_bytes()).into();
    }
    if let Some(target) = target {
        value["target"] = target.to_string_lossy().into();
    }
    if matches!(meta.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        value["device"] = device(meta.rdev).into();
    }
    value
}
