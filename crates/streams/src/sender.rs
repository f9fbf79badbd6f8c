//! The sending half of a connection.
//!
//! 1. What one thread sends leaves as one piece.
//! 2. No message is held back: it leaves now, or right after what is leaving.

use std::io;

use parking_lot::Mutex;

use crate::Stream;

/// Messages up to this many bytes are gathered while another thread sends, and go out in one call.
const SMALL: usize = 16 << 10;
/// With more than this gathered, a thread waits for its turn instead.
const GATHERED_MAX: usize = 256 << 10;

/// The sending half: threads take turns, and what is small goes out together.
#[derive(Debug, Default)]
pub struct Sender {
    turn: Mutex<()>,
    gathered: Mutex<Vec<u8>>,
}

impl Sender {
    /// Sends `parts` as one piece, now or with what another thread is about to send. An error ends the connection, also
    /// for those whose bytes were gathered: they learn it from the receiving side.
    pub fn send(&self, stream: &impl Stream, parts: [&[u8]; 2]) -> io::Result<()> {
        let len = parts[0].len() + parts[1].len();
        let mut gathered = self.gathered.lock();
        if len <= SMALL && gathered.len() <= GATHERED_MAX {
            gathered.extend_from_slice(parts[0]);
            gathered.extend_from_slice(parts[1]);
            drop(gathered);
        } else {
            drop(gathered);
            let turn = self.turn.lock();
            let before = std::mem::take(&mut *self.gathered.lock());
            checked(stream, &[&before, parts[0], parts[1]])?;
            drop(turn);
        }
        // The thread that had the turn when ours was gathered may have looked before: look again after each turn.
        while !self.gathered.lock().is_empty() {
            let Some(turn) = self.turn.try_lock() else {
                break;
            };
            let mut together = std::mem::take(&mut *self.gathered.lock());
            if !together.is_empty() {
                checked(stream, &[&together])?;
            }
            drop(turn);
            together.clear();
            let mut gathered = self.gathered.lock();
            if gathered.capacity() == 0 && together.capacity() <= GATHERED_MAX {
                *gathered = together;
            }
        }
        Ok(())
    }
}

fn checked(stream: &impl Stream, parts: &[&[u8]]) -> io::Result<()> {
    stream.send(parts).inspect_err(|_| stream.cut())
}
