//! A writer that takes no more than so many bytes a second.

use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Passes on at most `rate` bytes a second, counted from its creation.
pub(crate) struct Limited<W> {
    out: W,
    /// Bytes a second, at least 1; `None`: no limit.
    rate: Option<u64>,
    began: Instant,
    passed: u64,
}

impl<W: Write> Limited<W> {
    pub(crate) fn new(out: W, rate: Option<u64>) -> Self {
        Self {
            out,
            rate,
            began: Instant::now(),
            passed: 0,
        }
    }
}

/// When `passed` bytes may have been passed on, after the beginning.
fn due(passed: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(passed as f64 / rate as f64)
}

/// Bytes that are passed on at once: a tenth of a second's.
fn step(rate: u64) -> usize {
    usize::try_from((rate / 10).clamp(1, 1 << 20)).unwrap_or(1)
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(rate) = self.rate else {
            return self.out.write(bytes);
        };
        let written = self.out.write(&bytes[..bytes.len().min(step(rate))])?;
        self.passed += written as u64;
        let (due, now) = (due(self.passed, rate), self.began.elapsed());
        match due.checked_sub(now) {
            Some(wait) => {
                // A buffer below would keep what may pass, and pass it on in one burst later.
                self.out.flush()?;
                std::thread::sleep(wait);
            }
            // What was not used up, because something else was slow, is not made good later.
            None => (self.began, self.passed) = (Instant::now(), 0),
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_whole_and_not_sooner_than_they_may() {
        let data: Vec<u8> = (0..30_000_u32).map(|n| n as u8).collect();
        let mut out = Limited::new(Vec::new(), Some(100_000));
        let began = Instant::now();
        out.write_all(&data).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(290));
        assert!(out.out == data);
        let mut free = Limited::new(Vec::new(), None);
        free.write_all(&data).unwrap();
        assert!(free.out == data);
    }

    #[test]
    fn a_buffer_below_keeps_nothing_that_may_pass() {
        let below = io::BufWriter::with_capacity(1 << 20, Vec::new());
        let mut out = Limited::new(below, Some(100_000));
        out.write_all(&[7; 20_000]).unwrap();
        assert_eq!(out.out.get_ref().len(), 20_000);
    }

    #[test]
    fn a_byte_a_second_is_a_rate_too() {
        assert_eq!(step(1), 1);
        assert_eq!(step(u64::MAX), 1 << 20);
        assert_eq!(due(5, 1), Duration::from_secs(5));
    }
}
