//! A network block device: the newstyle protocol, reading only.
//!
//! Protocol: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>, "fixed newstyle" with `NBD_OPT_GO`.
//! Addresses: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>, `nbd://HOST[:PORT]/NAME` and
//! `nbd+unix:///NAME?socket=PATH`.
//!
//! 1. The only requests ever sent are READ and DISC.
//! 2. Calls at the same time have a connection each; what a broken call leaves unread is closed with its connection.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::read_only::{Existing, ReadOnly};
use super::{Cold, Making, Mode, Object};
use crate::model::StoreFacts;
use crate::{Error, Result};

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const FIXED_NEWSTYLE: u16 = 1;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const CMD_READ: u16 = 0;
const CMD_DISC: u16 = 2;
/// The longest answer to an option we care to read, bytes.
const REPLY_MAX: u32 = 1 << 16;
/// Longer than any disk takes; a server that says nothing for so long is gone.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An export of a server.
#[derive(Debug)]
pub(crate) struct Nbd {
    facts: StoreFacts,
    remote: Arc<Remote>,
    drop_caches: bool,
}

#[derive(Debug)]
struct Remote {
    address: Address,
    size: u64,
    idle: Mutex<Vec<Connection>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    at: At,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    Tcp(String),
    Unix(PathBuf),
}

trait Stream: Read + Write + Send + std::fmt::Debug {}
impl<T: Read + Write + Send + std::fmt::Debug> Stream for T {}

#[derive(Debug)]
struct Connection {
    stream: Box<dyn Stream>,
    size: u64,
    requests: u64,
}

impl Nbd {
    pub(crate) fn connect(target: &str, making: &Making) -> Result<ReadOnly<Nbd>> {
        let address = Address::parse(target)?;
        let first = Connection::open(&address).map_err(|e| {
            Error::store(
                target,
                format!("{e}; is the server running, and is that its export's name?"),
            )
        })?;
        Ok(ReadOnly(Nbd {
            facts: StoreFacts {
                label: making.label.clone(),
                kind: "network block device".into(),
                target: target.into(),
                ..StoreFacts::default()
            },
            remote: Arc::new(Remote {
                address,
                size: first.size,
                idle: Mutex::new(vec![first]),
            }),
            drop_caches: making.drop_caches,
        }))
    }
}

impl Existing for Nbd {
    const DIRECT: bool = false;

    fn facts(&self) -> &StoreFacts {
        &self.facts
    }

    fn refusal(&self) -> String {
        format!(
            "{}: a network block device is only ever read: writing would destroy what is in it",
            self.facts.target
        )
    }

    fn open(&self, _mode: Mode) -> Result<Arc<dyn Object>> {
        Ok(self.remote.clone())
    }

    fn make_cold(&mut self) -> Result<Cold> {
        let mut cold = Cold {
            done: vec!["nothing is cached on this side".into()],
            missing: Vec::new(),
        };
        // A server on this machine has its image in the same page cache.
        super::forget_all(self.drop_caches, &mut cold);
        super::say_of_server("the export", self.drop_caches, &mut cold);
        Ok(cold)
    }

    fn path(&self) -> Option<PathBuf> {
        None
    }
}

impl Object for Remote {
    fn len(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Connection::open(&self.address)?,
        };
        connection.read_at(buf, offset)?;
        self.idle.lock().push(connection);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Address {
    fn parse(target: &str) -> Result<Address> {
        let wrong = || {
            Error::Usage(format!(
                "{target}: write it as nbd://HOST/NAME, nbd://HOST:PORT/NAME or nbd+unix:///NAME?socket=PATH"
            ))
        };
        if let Some(rest) = target.strip_prefix("nbd+unix:///") {
            let (name, path) = rest.split_once("?socket=").ok_or_else(wrong)?;
            return Ok(Address {
                at: At::Unix(path.into()),
                name: name.into(),
            });
        }
        let rest = target.strip_prefix("nbd://").ok_or_else(wrong)?;
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong());
        }
        // An IPv6 address is in brackets, with colons of its own.
        let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let host = if has_port {
            host.to_owned()
        } else {
            format!("{host}:10809")
        };
        Ok(Address {
            at: At::Tcp(host),
            name: name.into(),
        })
    }
}

impl Connection {
    fn open(address: &Address) -> io::Result<Connection> {
        let stream: Box<dyn Stream> = match &address.at {
            At::Tcp(host) => {
                let stream = TcpStream::connect(host)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
            At::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                Box::new(stream)
            }
        };
        Connection::greet(stream, &address.name)
    }

    fn greet(mut stream: Box<dyn Stream>, name: &str) -> io::Result<Connection> {
        let s = &mut *stream;
        if (u64::from_be_bytes(take(s)?), u64::from_be_bytes(take(s)?)) != (NBDMAGIC, IHAVEOPT) {
            return Err(io::Error::other("no NBD server of the newstyle protocol"));
        }
        let flags = u16::from_be_bytes(take(s)?);
        if flags & FIXED_NEWSTYLE == 0 {
            return Err(io::Error::other("the server does not speak fixed newstyle"));
        }
        let name_len = u32::try_from(name.len()).map_err(io::Error::other)?;
        let mut said = u32::from(FIXED_NEWSTYLE).to_be_bytes().to_vec();
        said.extend(IHAVEOPT.to_be_bytes());
        said.extend(OPT_GO.to_be_bytes());
        said.extend((4 + name_len + 2).to_be_bytes());
        said.extend(name_len.to_be_bytes());
        said.extend(name.as_bytes());
        said.extend(0u16.to_be_bytes());
        s.write_all(&said)?;
        let mut size = None;
        loop {
            if u64::from_be_bytes(take(s)?) != OPTION_REPLY {
                return Err(io::Error::other("the server's answer is none"));
            }
            let _option: [u8; 4] = take(s)?;
            let kind = u32::from_be_bytes(take(s)?);
            let length = u32::from_be_bytes(take(s)?);
            if length > REPLY_MAX {
                return Err(io::Error::other("the server's answer is too long"));
            }
            let mut body = vec![0; length as usize];
            s.read_exact(&mut body)?;
            match kind {
                REP_ACK => break,
                REP_INFO => {
                    let export = body.strip_prefix(&INFO_EXPORT.to_be_bytes()[..]);
                    if let Some(bytes) = export.and_then(|body| body.first_chunk::<8>()) {
                        size = Some(u64::from_be_bytes(*bytes));
                    }
                }
                _ => {
                    let words = String::from_utf8_lossy(&body).into_owned();
                    return Err(io::Error::other(format!(
                        "the server refuses the export '{name}' ({kind:#x}) {words}"
                    )));
                }
            }
        }
        let size =
            size.ok_or_else(|| io::Error::other("the server does not say how long it is"))?;
        Ok(Connection {
            stream,
            size,
            requests: 0,
        })
    }

    fn request(&mut self, what: u16, offset: u64, length: u32) -> io::Result<u64> {
        self.requests += 1;
        let mut said = REQUEST.to_be_bytes().to_vec();
        said.extend(0u16.to_be_bytes());
        said.extend(what.to_be_bytes());
        said.extend(self.requests.to_be_bytes());
        said.extend(offset.to_be_bytes());
        said.extend(length.to_be_bytes());
        self.stream.write_all(&said)?;
        Ok(self.requests)
    }

    fn read_at(&mut self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let length = u32::try_from(buf.len()).map_err(io::Error::other)?;
        let cookie = self.request(CMD_READ, offset, length)?;
        let s = &mut *self.stream;
        let magic = u32::from_be_bytes(take(s)?);
        let error = u32::from_be_bytes(take(s)?);
        let answered = u64::from_be_bytes(take(s)?);
        if magic != SIMPLE_REPLY || answered != cookie {
            return Err(io::Error::other("the server answers something else"));
        }
        if error != 0 {
            // The protocol's numbers are those of Linux.
            return Err(io::Error::from_raw_os_error(error as i32));
        }
        s.read_exact(buf)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The server notices a closed socket, too.
        let _ = self.request(CMD_DISC, 0, 0);
    }
}

fn take<const N: usize>(stream: &mut dyn Stream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_uri_form_says() {
        let tcp = |host: &str, name: &str| Address {
            at: At::Tcp(host.into()),
            name: name.into(),
        };
        let parsed = |text| Address::parse(text).unwrap();
        assert_eq!(parsed("nbd://h/x"), tcp("h:10809", "x"));
        assert_eq!(parsed("nbd://h:1/x"), tcp("h:1", "x"));
        assert_eq!(parsed("nbd://[::1]/"), tcp("[::1]:10809", ""));
        assert_eq!(parsed("nbd://[::1]:2"), tcp("[::1]:2", ""));
        let unix = parsed("nbd+unix:///x?socket=/s");
        assert_eq!(unix.at, At::Unix("/s".into()));
        for wrong in ["nbd://", "nbd+unix:///x", "http://h/x"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// As `Store::path` has it: not on this host's disks, so a process serves it that nobody here knows.
    #[test]
    fn a_server_elsewhere_has_no_processor_time_here() {
        let observer = crate::observe::Observer::new(crate::observe::Subject::default());
        let watch = observer.begin(&crate::clock::SystemClock, &[]);
        let evidence = watch.finish(&[]);
        assert_eq!((evidence.cpu_s, evidence.server_io), (None, None));
    }
}
