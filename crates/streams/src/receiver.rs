//! The receiving half of a connection.

use std::io;

use crate::{Stream, is_tick};

/// How much is received ahead of what was asked for. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Usually: small messages come many at once.
    pub usual: usize,
    /// After a large payload: another is likely, which is better received where it belongs. At most [`Self::usual`].
    pub after_large: usize,
    /// What is left of a payload is received where it belongs from this many bytes on.
    pub direct: usize,
}

/// The receiving half: fewer, larger reads.
#[derive(Debug)]
pub struct Receiver {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    how: Ahead,
    ahead: usize,
}

impl Receiver {
    /// Nothing is there yet.
    pub fn new(how: Ahead) -> Self {
        Self {
            buffer: vec![0; how.usual],
            start: 0,
            end: 0,
            how,
            ahead: how.usual,
        }
    }

    /// Bytes that are there already.
    pub fn ready(&self) -> usize {
        self.end - self.start
    }

    /// The next `len` bytes, if they are there already: they are taken.
    pub fn take(&mut self, len: usize) -> Option<&[u8]> {
        if self.ready() < len {
            return None;
        }
        let start = self.start;
        self.start += len;
        Some(&self.buffer[start..start + len])
    }

    /// Fills `out`. After each wait `waited` says whether to go on; its argument says whether anything of `out` is there. `Ok(false)`
    /// where the peer had ended before the first byte.
    pub fn fill(
        &mut self,
        stream: &impl Stream,
        out: &mut [u8],
        waited: &mut dyn FnMut(bool) -> io::Result<()>,
    ) -> io::Result<bool> {
        if out.len() >= self.how.direct {
            self.ahead = self.how.after_large;
        }
        let mut done = 0;
        while done < out.len() {
            let part = (out.len() - done).min(self.ready());
            if let Some(bytes) = self.take(part).filter(|bytes| !bytes.is_empty()) {
                out[done..done + part].copy_from_slice(bytes);
                done += part;
                continue;
            }
            let rest = &mut out[done..];
            let direct = rest.len() >= self.how.direct;
            let got = if direct {
                stream.recv(rest)
            } else {
                stream.recv(&mut self.buffer[..self.ahead])
            };
            match got {
                Ok(0) if done == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) if direct => done += got,
                Ok(got) => (self.start, self.end) = (0, got),
                Err(e) if is_tick(&e) => {
                    waited(done > 0)?;
                    continue;
                }
                Err(e) => return Err(e),
            }
            if done < out.len() {
                waited(done > 0 || self.ready() > 0)?;
            }
        }
        Ok(true)
    }

    /// Fills `out` with what belongs to a message that has begun: an end is `UnexpectedEof`.
    pub fn fill_all(
        &mut self,
        stream: &impl Stream,
        out: &mut [u8],
        waited: &mut dyn FnMut(bool) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.fill(stream, out, waited)? {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Takes in `len` bytes of a message that has begun, and forgets them.
    pub fn skip(
        &mut self,
        stream: &impl Stream,
        mut len: usize,
        waited: &mut dyn FnMut(bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut scratch = [0; 4096];
        while len > 0 {
            let part = len.min(scratch.len());
            self.fill_all(stream, &mut scratch[..part], waited)?;
            len -= part;
        }
        Ok(())
    }

    /// What comes next is small.
    pub fn expect_small(&mut self) {
        self.ahead = self.how.usual;
    }
}
