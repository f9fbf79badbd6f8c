//! What the command prints: plain lines for people, JSON lines for programs, messages and failures on standard error.
//!
//! 1. Standard output carries only what was asked for; everything else goes to standard error.
//! 2. With `--json` every reported thing is one JSON object on one line; field names do not change.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use room::{FileKind, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::error::Error;
use crate::exit::Exit;
use crate::hex::hex;
use crate::tree::Meta;
pub(crate) use crate::words::{
    count, device, end, kind_word, mode_letters, moment, now, quoted, shown, shown_path, size,
};

/// Writes to standard output. A reader that has gone (`| head`) ends the program quietly.
pub fn bytes(data: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    if let Err(e) = stdout.write_all(data).and_then(|()| stdout.flush()) {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        eprintln!("strongroom: standard output: {e}");
        std::process::exit(i32::from(Exit::Failed.code()));
    }
}

/// Writes a line to standard output.
pub fn line(text: impl AsRef<str>) {
    let mut text = text.as_ref().to_owned();
    text.push('\n');
    bytes(text.as_bytes());
}

/// Writes a JSON object as a line.
pub fn json_line(value: &impl Serialize) {
    // Our own reports have text for keys and cannot fail.
    line(serde_json::to_string(value).expect("our own reports are JSON"));
}

/// Says something that is not a result, unless asked to be quiet.
pub fn note(global: &Global, text: impl AsRef<str>) {
    if !global.quiet {
        eprintln!("{}", text.as_ref());
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
        eprintln!("{value}");
    } else {
        eprintln!("strongroom: {error}");
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
