//! What the command prints: plain lines for people, JSON lines for programs, messages and failures on standard error.
//!
//! 1. Standard output carries only what was asked for; everything else goes to standard error.
//! 2. With `--json` every reported thing is one JSON object on one line; field names do not change.
//! 3. Names from a room are shown with control characters escaped, so that they cannot drive a terminal.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use room::{FileKind, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::error::Error;
use crate::exit::Exit;
use crate::tree::Meta;

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

/// A name for people.
pub(crate) fn shown(name: &OsStr) -> String {
    let mut text = String::new();
    for piece in name.as_bytes().utf8_chunks() {
        for letter in piece.valid().chars() {
            if letter.is_control() {
                let _ = write!(text, "{}", letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        for byte in piece.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The same for a path.
pub(crate) fn shown_path(path: &Path) -> String {
    shown(path.as_os_str())
}

/// A path as it is typed in a shell, for commands that messages suggest.
pub(crate) fn quoted(path: &Path) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(b) || *b >= 0x80;
    let bytes = path.as_os_str().as_bytes();
    let text = shown_path(path);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A number with its noun: "1 file", "2 files".
pub(crate) fn count(number: u64, noun: &str) -> String {
    match (number, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) if !noun.ends_with("ey") => format!("{number} {stem}ies"),
        _ if noun.ends_with('s') => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// A size for people: "1.5 MiB".
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A moment in UTC: "2026-11-22 03:04:05".
pub(crate) fn moment(secs: i64) -> String {
    let (days, of_day) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// The date `days` after 1970-01-01, in the Gregorian calendar: years of 400 make 146,097 days, and a year that begins in
/// March ends with its leap day.
fn civil(days: i64) -> (i64, u64, u64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (
        year_of_era + era * 400 + i64::from(month <= 2),
        month as u64,
        day as u64,
    )
}

/// "file", "directory" and so on, as JSON and people read it.
pub(crate) fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// Kind and permissions as `ls -l` shows them: "drwxr-xr-x".
pub(crate) fn mode_letters(kind: FileKind, mode: u16) -> String {
    let mut letters = String::with_capacity(10);
    letters.push(match kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    });
    for (shift, special, (with, without)) in [
        (6, 0o4000, ('s', 'S')),
        (3, 0o2000, ('s', 'S')),
        (0, 0o1000, ('t', 'T')),
    ] {
        let bits = mode >> shift;
        letters.push(if bits & 4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 2 != 0 { 'w' } else { '-' });
        letters.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => with,
            (false, true) => without,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    letters
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
        value["name_hex"] = crate::work::hex(name.as_bytes()).into();
    }
    if let Some(target) = target {
        value["target"] = target.to_string_lossy().into();
    }
    if matches!(meta.kind, FileKind::CharDevice | FileKind::BlockDevice) {
        value["device"] = device(meta.rdev).into();
    }
    value
}

/// "major, minor" of a device node.
pub(crate) fn device(rdev: u64) -> String {
    format!("{}, {}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// When a key or certificate ends, in words.
pub(crate) fn end(end: Option<u64>) -> String {
    let Some(end) = end else {
        return "has no lifetime: made by an older version".into();
    };
    let date = i64::try_from(end)
        .ok()
        .and_then(|end| jiff::Timestamp::from_second(end).ok())
        .map_or_else(
            || end.to_string(),
            |end| end.strftime("%Y-%m-%d").to_string(),
        );
    if end < now() {
        format!("ended {date}")
    } else {
        format!("ends {date}")
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (secs, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_316_645, "2026-11-22 03:04:05"),
            (13_574_649_600, "2400-03-01 00:00:00"),
        ] {
            assert_eq!(moment(secs), text);
        }
    }

    #[test]
    fn sizes_and_modes_read_as_usual() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(mode_letters(FileKind::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_letters(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_letters(FileKind::Fifo, 0o2604), "prw---Sr--");
    }

    #[test]
    fn a_path_is_quoted_where_a_shell_needs_it() {
        for (path, text) in [
            ("plain/a.b-c", "plain/a.b-c"),
            ("my room", "'my room'"),
            ("it's", "'it'\\''s'"),
            ("$HOME", "'$HOME'"),
            ("~", "'~'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(Path::new(path)), text);
        }
    }

    #[test]
    fn a_noun_follows_its_number() {
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(0, "file"), "0 files");
        assert_eq!(count(2, "directory"), "2 directories");
        assert_eq!(count(2, "key"), "2 keys");
        assert_eq!(count(3, "pass"), "3 passes");
    }

    #[test]
    fn a_name_cannot_drive_the_terminal() {
        assert_eq!(
            shown(OsStr::from_bytes(b"a\x1b[2Jb\xff")),
            "a\\u{1b}[2Jb\\xff"
        );
    }
}
