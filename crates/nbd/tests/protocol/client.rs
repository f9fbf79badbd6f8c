//! A client that says anything.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use device::{Device, MemoryDevice};
use nbd::{Config, Export, Server};

pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(crate) const LIST: u32 = 3;
pub(crate) const GO: u32 = 7;
pub(crate) const STRUCTURED_REPLY: u32 = 8;
pub(crate) const SET_META_CONTEXT: u32 = 10;
pub(crate) const EXTENDED_HEADERS: u32 = 11;
pub(crate) const ACK: u32 = 1;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;
pub(crate) const FUA: u16 = 1;
pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;

pub(crate) fn serve(device: Arc<dyn Device>, config: Config) -> Server {
    let export = Export {
        name: "disk".into(),
        description: "a disk".into(),
        device,
        read_only: false,
    };
    Server::start(config, vec![export]).unwrap()
}

pub(crate) fn memory(len: usize) -> Server {
    serve(Arc::new(MemoryDevice::new(len)), Config::default())
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    extended: bool,
}

/// A chunk or a simple reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) kind: u16,
    pub(crate) done: bool,
    /// Of extended replies.
    pub(crate) offset: u64,
    pub(crate) payload: Vec<u8>,
}

impl Reply {
    pub(crate) fn error(&self) -> Option<u32> {
        (self.kind == 0x8001).then(|| u32::from_be_bytes(self.payload[..4].try_into().unwrap()))
    }
}

impl Client {
    /// Connects without a word.
    pub(crate) fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            extended: false,
        }
    }

    /// Up to the options.
    pub(crate) fn greeted(server: &Server) -> Self {
        let mut client = Self::connect(server);
        let hello = client.read(18);
        assert_eq!(hello[..8], *b"NBDMAGIC");
        assert_eq!(hello[8..16], *b"IHAVEOPT");
        client.send(&3u32.to_be_bytes());
        client
    }

    /// In the transmission phase, with structured replies or extended headers, and with `base:allocation`.
    pub(crate) fn transmitting(server: &Server, extended: bool) -> Self {
        let mut client = Self::greeted(server);
        let form = if extended {
            EXTENDED_HEADERS
        } else {
            STRUCTURED_REPLY
        };
        assert_eq!(client.option(form, &[]).last().unwrap().0, ACK);
        let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
        query.extend_from_slice(b"base:allocation");
        assert_eq!(client.option(SET_META_CONTEXT, &query).len(), 2);
        assert_eq!(client.option(GO, &[0; 6]).last().unwrap().0, ACK);
        client.extended = extended;
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Everything until the server hangs up; an error where it does not within 30 s.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(bytes),
            other => other.map(|_| bytes),
        }
    }

    pub(crate) fn send_option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        self.send(&bytes);
    }

    /// All answers to an option: types and data.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data);
        let mut answers = Vec::new();
        loop {
            let head = self.read(20);
            assert_eq!(head[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
            assert_eq!(head[8..12], option.to_be_bytes());
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let len = u32::from_be_bytes(head[16..].try_into().unwrap());
            let data = self.read(len as usize);
            answers.push((kind, data));
            if kind == ACK || kind >> 31 == 1 {
                return answers;
            }
        }
    }

    pub(crate) fn head(
        &self,
        command: u16,
        flags: u16,
        cookie: u64,
        offset: u64,
        len: u64,
    ) -> Vec<u8> {
        let magic: u32 = if self.extended {
            0x21e4_1c71
        } else {
            0x2560_9513
        };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&command.to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        if self.extended {
            bytes.extend_from_slice(&len.to_be_bytes());
        } else {
            bytes.extend_from_slice(&(len as u32).to_be_bytes());
        }
        bytes
    }

    pub(crate) fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, len: u64) {
        let head = self.head(command, flags, cookie, offset, len);
        self.send(&head);
    }

    /// A structured or extended chunk.
    pub(crate) fn reply(&mut self) -> Reply {
        let head = self.read(if self.extended { 32 } else { 20 });
        let magic: u32 = if self.extended {
            0x6e8a_278c
        } else {
            0x668e_33ef
        };
        assert_eq!(head[..4], magic.to_be_bytes());
        let u16_at = |at: usize| u16::from_be_bytes(head[at..at + 2].try_into().unwrap());
        let u64_at = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().unwrap());
        let (offset, len) = if self.extended {
            (u64_at(16), u64_at(24))
        } else {
            (
                0,
                u64::from(u32::from_be_bytes(head[16..20].try_into().unwrap())),
            )
        };
        assert!(len <= (32 << 20) + 8, "{len}");
        Reply {
            done: u16_at(4) & 1 == 1,
            kind: u16_at(6),
            cookie: u64_at(8),
            offset,
            payload: self.read(len as usize),
        }
    }

    /// Does a request and takes its one reply.
    pub(crate) fn ask(&mut self, command: u16, flags: u16, offset: u64, len: u64) -> Reply {
        self.request(command, flags, 77, offset, len);
        let reply = self.reply();
        assert_eq!((reply.cookie, reply.done), (77, true));
        reply
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Reply {
        let flags = if self.extended { PAYLOAD_LEN } else { 0 };
        let mut bytes = self.head(WRITE, flags, 78, offset, data.len() as u64);
        bytes.extend_from_slice(data);
        self.send(&bytes);
        self.reply()
    }
}
