//! TLS 1.3 after its handshake: what a connection sends and receives, through `rustls`, for two threads at once.
//!
//! 1. The library seals and opens every record. Nothing of a record is handed out before its tag held, and sealing refreshes
//!    its keys, or ends, before the cipher's limit.
//! 2. Records leave in the order in which they were sealed. Nobody waits for the network while holding the library's state, so
//!    the two directions do not wait for each other.
//! 3. An end without `close_notify` is an end: every message of the protocol says its own length.
//!
//! It deliberately does not know sockets, nor what the bytes mean.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::Range;

use parking_lot::Mutex;
use rustls::Connection;

/// Bytes that are sealed, or received, at once: 128 KiB, which stay in a processor's cache.
const BATCH: usize = 128 << 10;
/// Most parts that are sent at once.
const PARTS_MAX: usize = 3;

/// A TLS connection after its handshake.
pub(crate) struct Session {
    state: Mutex<Connection>,
    /// Sealed and not sent yet: held from sealing to sending.
    outgoing: Mutex<Vec<u8>>,
    /// Received and not opened yet: held by the one who receives.
    incoming: Mutex<Incoming>,
}

struct Incoming {
    bytes: Vec<u8>,
    sealed: Range<usize>,
}

impl Session {
    /// `state`: after the handshake.
    pub(crate) fn new(mut state: Connection) -> Self {
        // What is sealed at once is bounded by `BATCH`.
        state.set_buffer_limit(None);
        Self {
            state: Mutex::new(state),
            outgoing: Mutex::default(),
            incoming: Mutex::new(Incoming {
                bytes: vec![0; BATCH],
                sealed: 0..0,
            }),
        }
    }

    /// Hands `parts`, three at most, to `send` as records, some at a time.
    pub(crate) fn send(
        &self,
        parts: &[&[u8]],
        mut send: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len <= BATCH {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            for (slice, part) in slices.iter_mut().zip(parts) {
                *slice = IoSlice::new(part);
            }
            self.seal(&slices[..parts.len()], len, &mut outgoing)?;
            return send(&outgoing);
        }
        for piece in parts.iter().flat_map(|part| part.chunks(BATCH)) {
            self.seal(&[IoSlice::new(piece)], piece.len(), &mut outgoing)?;
            send(&outgoing)?;
        }
        Ok(())
    }

    /// Replaces `out` with the records of `parts`, and of what the library has to say.
    fn seal(&self, parts: &[IoSlice<'_>], len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        let mut state = self.state.lock();
        if len > 0 && state.writer().write_vectored(parts)? != len {
            return Err(ErrorKind::WriteZero.into());
        }
        while state.wants_write() {
            state.write_tls(out)?;
        }
        Ok(())
    }

    /// Some bytes of data; 0 at the end. `receive` fetches what comes next, and its errors leave nothing undone.
    pub(crate) fn recv(
        &self,
        out: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        let Incoming { bytes, sealed } = &mut *incoming;
        loop {
            let (got, over) = self.open(out, bytes, sealed)?;
            if got > 0 || over || out.is_empty() {
                return Ok(got);
            }
            let more = receive(bytes)?;
            if more == 0 {
                return Ok(0);
            }
            *sealed = 0..more;
        }
    }

    /// Opens what is there, as far as `out` takes it: how many bytes, and whether the peer said that these are the last.
    fn open(
        &self,
        out: &mut [u8],
        bytes: &[u8],
        sealed: &mut Range<usize>,
    ) -> io::Result<(usize, bool)> {
        let mut state = self.state.lock();
        let mut got = 0;
        loop {
            while got < out.len() {
                match state.reader().read(&mut out[got..]) {
                    Ok(0) => return Ok((got, true)),
                    Ok(more) => got += more,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            if got == out.len() || (*sealed).is_empty() {
                return Ok((got, false));
            }
            let mut rest = &bytes[sealed.clone()];
            sealed.start += state.read_tls(&mut rest)?;
            state
                .process_new_packets()
                .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
        }
    }

    /// Whether the library has something to say to what was received: a call of [`send`](Self::send) sends it.
    pub(crate) fn has_answers(&self) -> bool {
        self.state.lock().wants_write()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::tls;
    use crate::{DiskCertificate, KeyFile};

    /// Most bytes of data in a record.
    const DATA_MAX: usize = 1 << 14;
    /// Header, inner type and tag of a record.
    const AROUND: usize = 5 + 1 + 16;

    /// Two ends after a handshake in memory.
    fn pair(certificate: &DiskCertificate, hash: [u8; 32]) -> (Session, Session) {
        let tls::ClientTls { config, name } = tls::client(hash).unwrap();
        let mut client: Connection = ClientConnection::new(config, name).unwrap().into();
        let mut server: Connection = ServerConnection::new(tls::server(certificate, None).unwrap())
            .unwrap()
            .into();
        let pass = |from: &mut Connection, to: &mut Connection| {
            let mut bytes = Vec::new();
            while from.wants_write() {
                from.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                to.read_tls(&mut rest).unwrap();
                to.process_new_packets().unwrap();
            }
        };
        while client.is_handshaking() || server.is_handshaking() {
            pass(&mut client, &mut server);
            pass(&mut server, &mut client);
        }
        (Session::new(client), Session::new(server))
    }

    fn sealed(from: &Session, parts: &[&[u8]]) -> Vec<u8> {
        let mut all = Vec::new();
        from.send(parts, |bytes| {
            assert!(bytes.len() <= BATCH + 100 * AROUND);
            all.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        all
    }

    /// Everything that opens of `bytes`, which come `piece` at a time, by reads of `space` bytes, and how it ended.
    fn opened(to: &Session, bytes: &[u8], piece: usize, space: usize) -> (Vec<u8>, io::Result<()>) {
        let (mut rest, mut all) = (bytes, Vec::new());
        let mut out = vec![0; space];
        loop {
            let got = to.recv(&mut out, |into| {
                let (now, later) = rest.split_at(rest.len().min(piece).min(into.len()));
                into[..now.len()].copy_from_slice(now);
                rest = later;
                Ok(now.len())
            });
            match got {
                Ok(0) => return (all, Ok(())),
                Ok(got) => all.extend_from_slice(&out[..got]),
                Err(e) => return (all, Err(e)),
            }
        }
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 / 7) as u8).collect()
    }

    fn disk() -> (DiskCertificate, [u8; 32]) {
        let keys = KeyFile::generate().unwrap();
        (keys.certificate.unwrap(), keys.certificate_hash)
    }

    #[test]
    fn what_was_sealed_opens_however_it_comes() {
        let (certificate, hash) = disk();
        let (one, two) = pair(&certificate, hash);
        for len in [
            1,
            120,
            DATA_MAX - 120,
            DATA_MAX,
            DATA_MAX + 1,
            4 * DATA_MAX,
            300_000,
        ] {
            let (head, data) = (pattern(120), pattern(len));
            let whole = [&head[..], &data].concat();
            for (piece, space) in [
                (1 << 20, 1 << 20),
                (1 << 20, DATA_MAX),
                (1000, DATA_MAX + 1),
                (777, 400),
                (100, 1 << 20),
            ] {
                for (from, to) in [(&one, &two), (&two, &one)] {
                    let bytes = sealed(from, &[&head, &data]);
                    let (got, end) = opened(to, &bytes, piece, space);
                    assert!(end.is_ok() && got == whole, "{len} {piece} {space}");
                }
            }
        }
        assert!(sealed(&one, &[&[]]).is_empty());
        assert!(sealed(&one, &[]).is_empty());
    }

    /// The type and version in front of a record are the same for every one (RFC 8446, 5.2): the library takes them for what they
    /// must be, so changing them changes nothing.
    #[test]
    fn a_flipped_bit_anywhere_in_a_record_hands_out_nothing_else() {
        let (certificate, hash) = disk();
        let len = b"first".len() + AROUND;
        for at in 0..len {
            for space in [2, 100] {
                let (one, two) = pair(&certificate, hash);
                let mut bytes = sealed(&one, &[b"first"]);
                assert_eq!(bytes.len(), len);
                bytes[at] ^= 1;
                let (got, end) = opened(&two, &bytes, 1 << 20, space);
                if at < 3 && end.is_ok() {
                    assert_eq!(got, b"first");
                    continue;
                }
                assert!(got.is_empty(), "byte {at}");
                // A length that became larger waits for bytes that do not come.
                assert!(end.is_err() || matches!(at, 3 | 4), "byte {at}");
            }
        }
    }

    #[test]
    fn records_left_out_repeated_swapped_or_cut_off_hand_out_nothing() {
        let (certificate, hash) = disk();
        let record = DATA_MAX + AROUND;
        let data = pattern(3 * DATA_MAX);
        let case = |change: &dyn Fn(&[u8]) -> Vec<u8>| {
            let (one, two) = pair(&certificate, hash);
            let bytes = sealed(&one, &[&data]);
            assert_eq!(bytes.len(), 3 * record);
            opened(&two, &change(&bytes), 1 << 20, 100)
        };
        let (got, end) = case(&|bytes| bytes[record..].to_vec());
        assert!(got.is_empty() && end.is_err());
        let (got, end) = case(&|bytes| [&bytes[..record], &bytes[..record]].concat());
        // What came before in order may be handed out.
        assert!(data[..DATA_MAX].starts_with(&got) && end.is_err());
        let (got, end) = case(&|bytes| [&bytes[..record], &bytes[2 * record..]].concat());
        // What came before in order may be handed out.
        assert!(data[..DATA_MAX].starts_with(&got) && end.is_err());
        let (got, end) = case(&|bytes| [&bytes[record..2 * record], &bytes[..record]].concat());
        assert!(got.is_empty() && end.is_err());
        // An end is an end, between two records and within one: a message says its own length.
        let (got, end) = case(&|bytes| bytes[..bytes.len() - 1].to_vec());
        assert!(got == data[..2 * DATA_MAX] && end.is_ok());
        let (got, end) = case(&|bytes| bytes[..record].to_vec());
        assert!(got == data[..DATA_MAX] && end.is_ok());
        let (got, end) = case(&|_| [23, 3, 3, 0xff, 0xff, 0].to_vec());
        assert!(got.is_empty() && end.is_err());
        let (got, end) = case(&|_| [22, 3, 3, 0, 1, 0].to_vec());
        assert!(got.is_empty() && end.is_err());
    }

    #[test]
    fn a_record_of_another_connection_is_refused() {
        let (certificate, hash) = disk();
        let (one, _) = pair(&certificate, hash);
        let (_, two) = pair(&certificate, hash);
        let (got, end) = opened(&two, &sealed(&one, &[b"first"]), 1 << 20, 100);
        assert!(got.is_empty() && end.is_err());
    }

    #[test]
    fn keys_are_refreshed_and_a_farewell_is_the_end() {
        let (certificate, hash) = disk();
        let (one, two) = pair(&certificate, hash);
        one.state.lock().refresh_traffic_keys().unwrap();
        let (got, end) = opened(&two, &sealed(&one, &[b"after"]), 1 << 20, 100);
        assert!(end.is_ok() && got == b"after");
        one.state.lock().send_close_notify();
        let bytes = sealed(&one, &[]);
        let (got, end) = opened(&two, &[&bytes[..], b"more"].concat(), 1 << 20, 100);
        assert!(end.is_ok() && got.is_empty());
    }
}
