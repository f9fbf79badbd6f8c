//! The protocol a second time, from `docs/netdisk.md` and not from the crate: what an attacker, or another implementation,
//! would write. It sends what the test says, right or wrong.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use netdisk::{Capability, Mode, Reason};
use openssl::hash::MessageDigest;
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode, SslVersion};

/// The disk key of every test.
pub(crate) const KEY: [u8; 32] = [0x5a; 32];
pub(crate) const HEAD: usize = 120;
pub(crate) const REPLY: usize = 112;

pub(crate) const READ: u8 = 1;
pub(crate) const WRITE: u8 = 2;
pub(crate) const FLUSH: u8 = 3;
pub(crate) const STATUS: u8 = 16;
pub(crate) const SET_GROUPS: u8 = 17;
pub(crate) const DISCARD: u8 = 19;
pub(crate) const CLAIM: u8 = 20;

/// A request, before it is bytes.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) op: u8,
    pub(crate) number: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) nonce: [u8; 16],
    pub(crate) start: u64,
    pub(crate) blocks: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) capability: Vec<u8>,
    /// What the message keys are derived from.
    pub(crate) secret: [u8; 32],
    /// Payloads have tags: all but inside TLS.
    pub(crate) tagged: bool,
}

pub(crate) struct Reply {
    pub(crate) status: u8,
    pub(crate) signed: bool,
    pub(crate) number: u64,
    pub(crate) boot: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) payload: Vec<u8>,
    pub(crate) raw: Vec<u8>,
}

impl Reply {
    /// `None`: done.
    pub(crate) fn reason(&self) -> Option<Reason> {
        (self.status != 0).then(|| Reason::from_code(self.status).expect("a reason"))
    }

    /// Whether its MAC is the disk's, for this request.
    pub(crate) fn is_authentic(&self, request: &Request) -> bool {
        let [_, _, reply, payload] = message_keys(&request.secret);
        let signed = [&request.nonce[..], &self.raw[..80]].concat();
        let tagged: &[u8] = if request.tagged { &self.payload } else { &[] };
        let tag = tag(&payload, &signed[..80], tagged);
        self.signed && self.raw[64..80] == tag && self.raw[80..REPLY] == mac(&reply, &signed)
    }
}

pub(crate) fn mac(key: &[u8; 32], data: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, data).as_bytes()
}

/// Of OpenSSL, not of the library that the crate uses.
pub(crate) fn tag(key: &[u8; 32], head: &[u8], payload: &[u8]) -> [u8; 16] {
    let mut tag = [0; 16];
    if !payload.is_empty() {
        let one_time = mac(key, head);
        let gcm = openssl::symm::Cipher::aes_256_gcm();
        openssl::symm::encrypt_aead(gcm, &one_time, Some(&[0; 12]), payload, &[], &mut tag)
            .unwrap();
    }
    tag
}

pub(crate) fn secret(disk_key: &[u8; 32], capability: &[u8]) -> [u8; 32] {
    let context = "strongroom 2026 netdisk v1 capability secrets";
    mac(&blake3::derive_key(context, disk_key), capability)
}

pub(crate) fn management(disk_key: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key("strongroom 2026 netdisk v1 management", disk_key)
}

/// Request, its payload, reply, its payload.
fn message_keys(secret: &[u8; 32]) -> [[u8; 32]; 4] {
    let mut out = [0; 128];
    blake3::Hasher::new_keyed(secret)
        .update(b"strongroom netdisk v2 message keys")
        .finalize_xof()
        .fill(&mut out);
    [0, 1, 2, 3].map(|i| out[i * 32..][..32].try_into().unwrap())
}

pub(crate) fn capability(capability: &Capability) -> Vec<u8> {
    let mode = match capability.mode {
        Mode::Read => 1,
        Mode::Write => 2,
        Mode::ReadWrite => 3,
    };
    let mut out = vec![1, mode, capability.extents.len() as u8, 0];
    out.extend(capability.id.0.to_le_bytes());
    out.extend(capability.group.0.to_le_bytes());
    out.extend(capability.disk.0);
    out.extend(capability.client.0.to_le_bytes());
    out.extend(capability.expires.to_le_bytes());
    out.extend(capability.nonce);
    for extent in &capability.extents {
        out.extend(extent.start.to_le_bytes());
        out.extend(extent.blocks.to_le_bytes());
    }
    out
}

impl Request {
    /// Under a capability of the disk with [`KEY`], for the boot and epoch that `at` names.
    pub(crate) fn new(op: u8, of: &Capability, at: ([u8; 16], u64)) -> Self {
        let capability = capability(of);
        Self {
            op,
            number: 1,
            boot: at.0,
            epoch: at.1,
            nonce: fresh(),
            start: 0,
            blocks: 0,
            payload: Vec::new(),
            secret: secret(&KEY, &capability),
            tagged: true,
            capability,
        }
    }

    pub(crate) fn read(of: &Capability, at: ([u8; 16], u64), start: u64, blocks: u32) -> Self {
        Self {
            start,
            blocks,
            ..Self::new(READ, of, at)
        }
    }

    pub(crate) fn write(
        of: &Capability,
        at: ([u8; 16], u64),
        start: u64,
        payload: Vec<u8>,
    ) -> Self {
        Self {
            start,
            blocks: (payload.len() / 4096) as u32,
            payload,
            ..Self::new(WRITE, of, at)
        }
    }

    pub(crate) fn management(op: u8, at: ([u8; 16], u64), payload: Vec<u8>) -> Self {
        Self {
            op,
            number: 1,
            boot: at.0,
            epoch: at.1,
            nonce: fresh(),
            start: 0,
            blocks: 0,
            payload,
            capability: Vec::new(),
            secret: management(&KEY),
            tagged: true,
        }
    }

    /// The valid groups, for one sequence of the disk.
    pub(crate) fn set_groups(at: ([u8; 16], u64), sequence: u32, groups: &[u64]) -> Self {
        let payload = groups.iter().flat_map(|group| group.to_le_bytes());
        Self {
            blocks: sequence,
            ..Self::management(SET_GROUPS, at, payload.collect())
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let [request, payload, _, _] = message_keys(&self.secret);
        let mut out = Vec::new();
        out.extend(b"SNDq");
        out.extend([3, self.op]);
        out.extend((self.capability.len() as u16).to_le_bytes());
        out.extend(self.number.to_le_bytes());
        out.extend(self.boot);
        out.extend(self.epoch.to_le_bytes());
        out.extend(self.nonce);
        out.extend(self.start.to_le_bytes());
        out.extend(self.blocks.to_le_bytes());
        out.extend((self.payload.len() as u32).to_le_bytes());
        let tagged: &[u8] = if self.tagged { &self.payload } else { &[] };
        out.extend(tag(&payload, &out, tagged));
        out.extend(mac(&request, &out));
        assert_eq!(out.len(), HEAD);
        out.extend(&self.capability);
        out.extend(&self.payload);
        out
    }
}

/// 16 bytes that were not used before in this process.
pub(crate) fn fresh() -> [u8; 16] {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut out = [0xA5; 16];
    out[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    out
}

pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_nodelay(true).unwrap();
    // A test that waits this long has failed.
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
}

/// The same inside TLS 1.3, of OpenSSL; the hash of the certificate that it showed is `hash`.
pub(crate) fn connect_privately(to: SocketAddr, hash: &[u8; 32]) -> SslStream<TcpStream> {
    let mut client = SslConnector::builder(SslMethod::tls_client()).unwrap();
    client.set_verify(SslVerifyMode::NONE);
    client
        .set_min_proto_version(Some(SslVersion::TLS1_3))
        .unwrap();
    let mut client = client.build().configure().unwrap();
    client.set_verify_hostname(false);
    let stream = client.connect("disk", connect(to)).unwrap();
    let shown = stream.ssl().peer_certificate().unwrap();
    assert_eq!(&*shown.digest(MessageDigest::sha256()).unwrap(), hash);
    stream
}

/// Sends bytes and takes one reply; `None` where the disk ends the connection instead.
pub(crate) fn ask(socket: &mut (impl Read + Write), bytes: &[u8]) -> Option<Reply> {
    // The disk may have ended it already.
    let _ = socket.write_all(bytes);
    take(socket)
}

/// One reply.
pub(crate) fn take(socket: &mut impl Read) -> Option<Reply> {
    let mut raw = vec![0; REPLY];
    socket.read_exact(&mut raw).ok()?;
    assert_eq!(&raw[..5], b"SNDr\x03");
    let len = u32::from_le_bytes(raw[56..60].try_into().unwrap()) as usize;
    assert!(len <= 1 << 20);
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload).ok()?;
    Some(Reply {
        status: raw[6],
        signed: raw[7] == 1,
        number: u64::from_le_bytes(raw[8..16].try_into().unwrap()),
        boot: raw[16..32].try_into().unwrap(),
        epoch: u64::from_le_bytes(raw[32..40].try_into().unwrap()),
        payload,
        raw,
    })
}

/// Sends bytes on a connection of their own, then nothing more; every reply that comes.
pub(crate) fn send_all(to: SocketAddr, bytes: &[u8]) -> Vec<Reply> {
    let mut socket = connect(to);
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    std::iter::from_fn(|| take(&mut socket)).collect()
}

/// The disk's boot and epoch, as it reports them to any holder of a capability.
pub(crate) fn boot_and_epoch(to: SocketAddr, of: &Capability) -> ([u8; 16], u64) {
    let request = Request::read(of, ([0; 16], 0), 0, 1);
    let reply = ask(&mut connect(to), &request.bytes()).unwrap();
    assert_eq!(reply.reason(), Some(Reason::StaleBoot));
    assert!(reply.is_authentic(&request));
    (reply.boot, reply.epoch)
}
