//! Compressed tar streams: known by their first bytes, decompressed by the programs of their formats, as tar(1) does it.
//!
//! Invariant: a stream ends well only if its program did; one that was cut short is an error.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::error::{Error, Result};

/// First bytes that identify a format: the longest of [`FORMATS`].
const MAGIC_MAX: usize = 6;

/// A format of compressed streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    /// Its name, and that of the program which decompresses it.
    pub(super) name: &'static str,
    magic: &'static [u8],
}

const FORMATS: [Format; 5] = [
    Format {
        name: "gzip",
        magic: b"\x1f\x8b",
    },
    Format {
        name: "zstd",
        magic: b"\x28\xb5\x2f\xfd",
    },
    Format {
        name: "xz",
        magic: b"\xfd7zXZ\0",
    },
    Format {
        name: "bzip2",
        magic: b"BZh",
    },
    Format {
        name: "lz4",
        magic: b"\x04\x22\x4d\x18",
    },
];

fn format_of(first: &[u8]) -> Option<Format> {
    FORMATS
        .into_iter()
        .find(|format| first.starts_with(format.magic))
}

/// The format in which a file is compressed, if it is.
pub(super) fn format_of_file(path: &Path) -> Option<Format> {
    let mut first = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAGIC_MAX as u64).read_to_end(&mut first).ok()?;
    format_of(&first)
}

/// The stream in a file, decompressed.
pub(super) fn file(mut file: File, path: &Path) -> Result<Box<dyn Read>> {
    let unreadable = |e| Error::host(path, e);
    let mut first = Vec::new();
    (&file)
        .take(MAGIC_MAX as u64)
        .read_to_end(&mut first)
        .map_err(unreadable)?;
    let Some(format) = format_of(&first) else {
        // A pipe has a name too, and cannot be read twice.
        return Ok(match file.rewind() {
            Ok(()) => Box::new(file),
            Err(_) => Box::new(Cursor::new(first).chain(file)),
        });
    };
    match file.rewind() {
        Ok(()) => Decompressed::start(format, file.into(), None),
        Err(_) => Decompressed::start(format, Stdio::piped(), Some((first, Box::new(file)))),
    }
}

/// The stream at standard input, decompressed.
pub(super) fn standard_input() -> Result<Box<dyn Read>> {
    let mut stdin = io::stdin();
    let mut first = Vec::new();
    stdin
        .by_ref()
        .take(MAGIC_MAX as u64)
        .read_to_end(&mut first)
        .map_err(|e| Error::failed(format!("standard input: {e}")))?;
    match format_of(&first) {
        None => Ok(Box::new(Cursor::new(first).chain(stdin))),
        Some(format) => Decompressed::start(format, Stdio::piped(), Some((first, Box::new(stdin)))),
    }
}

/// What a program decompresses.
#[derive(Debug)]
struct Decompressed {
    format: Format,
    child: Child,
    out: ChildStdout,
    ended: bool,
}

impl Decompressed {
    /// `fed`: what is written to the program, where its standard input is a pipe.
    fn start(
        format: Format,
        input: Stdio,
        fed: Option<(Vec<u8>, Box<dyn Read + Send>)>,
    ) -> Result<Box<dyn Read>> {
        let failed = |words: String| Error::failed(format!("{}: {words}", format.name));
        let mut child = Command::new(format.name)
            .arg("-dc")
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => failed(format!(
                    "the stream is compressed with {0}, which is not installed here: install it, or decompress the stream first",
                    format.name
                )),
                _ => failed(e.to_string()),
            })?;
        let (Some(out), stdin) = (child.stdout.take(), child.stdin.take()) else {
            return Err(failed("has no standard output".into()));
        };
        if let (Some((first, mut rest)), Some(mut stdin)) = (fed, stdin) {
            std::thread::Builder::new()
                .name("decompress".into())
                .spawn(move || {
                    // A program that ended early says why by its exit status.
                    let _ = stdin
                        .write_all(&first)
                        .and_then(|()| io::copy(&mut rest, &mut stdin));
                })
                .map_err(|e| failed(e.to_string()))?;
        }
        Ok(Box::new(Self {
            format,
            child,
            out,
            ended: false,
        }))
    }
}

impl Read for Decompressed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.out.read(buf)?;
        if got == 0 && !buf.is_empty() && !self.ended {
            let status = self.child.wait()?;
            self.ended = true;
            if !status.success() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "{} ended with {status}: the stream is damaged or cut short",
                        self.format.name
                    ),
                ));
            }
        }
        Ok(got)
    }
}

impl Drop for Decompressed {
    fn drop(&mut self) {
        if !self.ended {
            // It waits for a reader that has gone.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        assert_eq!(format_of(b"\x1f\x8b\x08\0").map(|f| f.name), Some("gzip"));
        assert_eq!(format_of(b"\xfd7zXZ\0\0").map(|f| f.name), Some("xz"));
        assert_eq!(format_of(b"./file"), None);
        assert_eq!(format_of(b""), None);
        assert!(FORMATS.iter().all(|f| f.magic.len() <= MAGIC_MAX));
    }
}
