//! Records of TLS that do not come as a whole.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::MemoryDevice;
use nbd::{Config, Tls, TlsFiles, TlsPolicy};
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream, SslVersion};

use crate::client::*;

const STARTTLS: u32 = 5;
const KEY: u8 = 0x1a;

/// A socket whose ciphertext can be kept back.
struct Socket {
    stream: TcpStream,
    kept: Option<Vec<u8>>,
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buf)
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.kept {
            Some(kept) => kept.write(buf),
            None => self.stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection inside TLS, in the handshake of NBD.
fn inside_tls(server: &nbd::Server) -> SslStream<Socket> {
    let mut client = Client::greeted(server);
    assert_eq!(client.option(STARTTLS, &[])[0].0, ACK);
    let mut builder = SslContext::builder(SslMethod::tls_client()).unwrap();
    builder
        .set_min_proto_version(Some(SslVersion::TLS1_3))
        .unwrap();
    builder.set_ciphersuites("TLS_AES_128_GCM_SHA256").unwrap();
    builder.set_psk_client_callback(|_, _, identity, key| {
        identity[..6].copy_from_slice(b"alice\0");
        key[..32].fill(KEY);
        Ok(32)
    });
    let socket = Socket {
        stream: client.stream,
        kept: None,
    };
    let ssl = Ssl::new(&builder.build()).unwrap();
    let mut inside = SslStream::new(ssl, socket).unwrap();
    inside.connect().unwrap();
    inside
}

/// Into the transmission phase, with simple replies.
fn go(inside: &mut SslStream<Socket>) {
    let mut option = IHAVEOPT.to_be_bytes().to_vec();
    option.extend_from_slice(&GO.to_be_bytes());
    option.extend_from_slice(&6_u32.to_be_bytes());
    option.extend_from_slice(&[0; 6]);
    inside.write_all(&option).unwrap();
    loop {
        let mut head = [0; 20];
        inside.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(16) as usize];
        inside.read_exact(&mut data).unwrap();
        if word(12) == ACK {
            return;
        }
    }
}

/// The server waited for the end of a record without looking at the time.
#[test]
fn a_client_that_sends_a_record_byte_by_byte_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.psk");
    std::fs::write(&keys, format!("alice:{}\n", "1a".repeat(32))).unwrap();
    let files = TlsFiles {
        pre_shared_keys: Some(keys),
        ..TlsFiles::default()
    };
    let config = Config {
        policy: TlsPolicy::Require,
        tls: Some(Tls::read(&files).unwrap()),
        // An honest handshake takes less, also on a busy machine.
        handshake_max: Duration::from_secs(5),
        transfer_max: Duration::from_secs(1),
        ..Config::default()
    };
    let server = serve(Arc::new(MemoryDevice::new(1 << 20)), config);
    for in_transmission in [false, true] {
        let mut inside = inside_tls(&server);
        if in_transmission {
            go(&mut inside);
            // The beginning of a request.
            inside.write_all(&0x2560_9513_u32.to_be_bytes()).unwrap();
        }
        inside.get_mut().kept = Some(Vec::new());
        inside.write_all(&[0; 16_000]).unwrap();
        let record = inside.get_mut().kept.take().unwrap();
        assert!(record.len() > 16_000);
        let begun = Instant::now();
        let mut bytes = record.iter();
        while let Some(byte) = bytes.next()
            && inside.get_mut().stream.write_all(&[*byte]).is_ok()
        {
            assert!(begun.elapsed() < Duration::from_secs(40));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(server.metrics().connections_cut, 2);
}
