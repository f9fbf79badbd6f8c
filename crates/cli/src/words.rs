//! Facts in words: names, paths, numbers, moments and kinds of files as a person reads them.
//!
//! Names are shown with control characters escaped, so that they cannot drive a terminal.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use room::FileKind;

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

/// A size for people: "1.50 MiB".
pub(crate) fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// A moment in UTC: "2026-11-22 03:04:05".
pub(crate) fn moment(secs: i64) -> String {
    in_utc(secs, "%Y-%m-%d %H:%M:%S")
}

/// A moment in UTC as a date: "2026-11-22".
fn date(secs: i64) -> String {
    in_utc(secs, "%Y-%m-%d")
}

/// The number itself where no calendar has the moment.
fn in_utc(secs: i64, format: &str) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(
        |_| secs.to_string(),
        |moment| moment.strftime(format).to_string(),
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

/// "major, minor" of a device node.
pub(crate) fn device(rdev: u64) -> String {
    format!("{}, {}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// When a key or certificate ends, in words.
pub(crate) fn end(end: Option<u64>) -> String {
    let Some(end) = end else {
        return "has no lifetime: made by an older version".into();
    };
    let date = date(end.try_into().unwrap_or(i64::MAX));
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
        assert_eq!(size(1536), "1.50 KiB");
        assert_eq!(size(u64::MAX), "16.00 EiB");
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
