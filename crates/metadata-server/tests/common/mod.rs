//! A room on real disks, served by a real metadata server on loopback, and clients that say what they like.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

mod changes;
pub mod port;

pub use changes::*;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::{Device, MemoryDevice};
use metadata_proto::rpc::*;
use metadata_server::enrol::{self, Identity};
use metadata_server::server::{Config, MetadataServer};
use netdisk::{
    BLOCK_LEN, DiskAddress, DiskClient, DiskError, KeyFile, Protection, Store, Surroundings, Ticket,
};
use room::{
    Access, Credential, FileKind, Inode, InodeNo, Lock, LockKind, NewCredential, NewFile, NewRoom,
    OpenOptions, Room, Secret, SetAttr, WrittenExtent,
};
use tarpc::client::RpcError;
use tarpc::context::Context;
use tokio::net::TcpStream;

/// No test waits for this long unless it fails.
pub const LONG: Duration = Duration::from_secs(60);
/// Room for four segments.
const DISK_LEN: usize = (256 << 20) + 4096;

/// A lock of a range that process 1 asked for.
pub fn lock(kind: LockKind, start: u64, end: u64) -> Lock {
    let pid = 1;
    Lock {
        kind,
        start,
        end,
        pid,
    }
}

pub struct Disk {
    pub name: String,
    pub keys: KeyFile,
    device: Arc<dyn Device>,
    server: Option<netdisk::server::Server>,
    listen: String,
}

impl Disk {
    pub fn new(name: &str) -> Self {
        let keys = KeyFile::generate().unwrap();
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(DISK_LEN));
        Store::init(&*device, keys.id, false).unwrap();
        let mut disk = Self {
            name: name.into(),
            keys,
            device,
            server: None,
            listen: format!("127.0.0.1:{}", port::fixed_port()),
        };
        disk.start();
        disk
    }

    pub fn start(&mut self) {
        let surroundings = Surroundings {
            origin: b"this machine".to_vec(),
            failures: None,
        };
        let store = Store::open(self.device.clone(), surroundings).unwrap();
        let config = netdisk::server::Config {
            listen: self.listen.clone(),
            ..Default::default()
        };
        let server = netdisk::server::Server::start(config, store, &self.keys).unwrap();
        self.listen = server.local_addr().to_string();
        self.server = Some(server);
    }

    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.stop(LONG).unwrap();
        }
    }

    pub fn address(&self) -> DiskAddress {
        DiskAddress {
            id: self.keys.id,
            address: self.listen.clone(),
            protection: Protection::Secure,
            certificate: Some(self.keys.certificate_hash),
        }
    }

    pub fn enrolled(&self) -> enrol::Disk {
        enrol::Disk {
            name: self.name.clone(),
            address: self.address(),
            key: self.keys.key.clone(),
        }
    }

    pub fn client(&self) -> DiskClient {
        DiskClient::new(self.address(), Duration::from_secs(5))
    }

    /// What a thief of the disk gets: everything stored on it, from the first block of its clients on.
    pub fn stolen(&self) -> Vec<u8> {
        let mut bytes = vec![0; DISK_LEN - BLOCK_LEN];
        self.device.read_at(&mut bytes, BLOCK_LEN as u64).unwrap();
        bytes
    }

    /// Puts other bytes on the disk, from a block of its clients on.
    pub fn put(&self, block: u64, bytes: &[u8]) {
        let offset = (block + 1) * BLOCK_LEN as u64;
        self.device.write_at(bytes, offset).unwrap();
    }
}

pub struct World {
    /// Ends before its disks: it takes its leave of them.
    pub server: Option<MetadataServer>,
    pub disks: Vec<Disk>,
    pub lease: Duration,
    /// Changes the server's settings at its next start.
    pub change: fn(&mut Config),
    pub runtime: Arc<tokio::runtime::Runtime>,
    /// Removed last: the room's closing writes there.
    dir: tempfile::TempDir,
}

pub fn credential() -> Credential {
    Credential::RawKey(Secret::from(vec![7; 32]))
}

impl World {
    pub fn new(disks: usize) -> Self {
        Self::with_lease(disks, LONG)
    }

    pub fn with_lease(disks: usize, lease: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut new = NewRoom::with_credential(NewCredential::RawKey(Secret::from(vec![7; 32])));
        new.open.state_dir = Some(dir.path().join("state"));
        (new.uid, new.gid) = (0, 0);
        new.suite = Some(room::Suite::Aes256Gcm);
        Room::create(&dir.path().join("room"), new)
            .unwrap()
            .close()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mut world = Self {
            dir,
            disks: (0..disks).map(|n| Disk::new(&format!("disk{n}"))).collect(),
            server: None,
            lease,
            change: |_| (),
            runtime: Arc::new(runtime),
        };
        world.start();
        world
    }

    pub fn room_dir(&self) -> PathBuf {
        self.dir.path().join("room")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn start(&mut self) {
        let mut config = Config::new(self.room_dir());
        config.open = OpenOptions::with_state_dir(self.dir.path().join("state"));
        config.lease = self.lease;
        config.flush_timeout = Duration::from_secs(5);
        config.timing.revocation_timeout = Duration::from_secs(5);
        config.disks = self.disks.iter().map(Disk::enrolled).collect();
        (self.change)(&mut config);
        self.server = Some(MetadataServer::start(config, credential()).unwrap());
    }

    pub fn server(&self) -> &MetadataServer {
        self.server.as_ref().unwrap()
    }

    pub fn stop(&mut self) {
        self.server.take().unwrap().stop().unwrap();
    }

    pub fn identity(&self, name: &str, uid: u32, gids: &[u32]) -> Identity {
        self.server().add_user(name, uid, gids).unwrap().1
    }

    /// A client of a new user with a session.
    pub fn client(&self, name: &str, uid: u32, gids: &[u32]) -> Raw {
        let identity = Arc::new(self.identity(name, uid, gids));
        Raw::connect(self, identity, None).unwrap()
    }

    pub fn disk(&self, ticket: &Ticket) -> &Disk {
        self.disks
            .iter()
            .find(|d| d.keys.id == ticket.capability.disk)
            .unwrap()
    }
}

/// A number for a call, and a slot for it.
pub fn once() -> Once {
    static SEQUENCES: AtomicU64 = AtomicU64::new(1);
    let sequence = SEQUENCES.fetch_add(1, Ordering::Relaxed);
    Once {
        slot: (sequence % u64::from(SLOTS_MAX)) as u32,
        sequence,
    }
}

/// A client that sends whatever the test wants.
pub struct Raw {
    pub identity: Arc<Identity>,
    pub welcome: Welcome,
    client: MetadataClient,
    runtime: Arc<tokio::runtime::Runtime>,
    number: std::sync::atomic::AtomicU64,
}

pub fn context() -> Context {
    let mut context = tarpc::context::current();
    context.deadline = Instant::now() + LONG;
    context
}

pub async fn dial(
    address: std::net::SocketAddr,
    identity: &Identity,
) -> std::io::Result<MetadataClient> {
    let tcp = TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(identity.client_config().unwrap()));
    let mut stream = connector
        .connect(identity.server_name().unwrap(), tcp)
        .await?;
    let mut first = [0];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await?;
    if first != [LET_IN] {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    let transport = metadata_proto::transport::transport(stream);
    Ok(MetadataClient::new(tarpc::client::Config::default(), transport).spawn())
}

impl Raw {
    pub fn connect(
        world: &World,
        identity: Arc<Identity>,
        session: Option<SessionId>,
    ) -> Result<Self, String> {
        let address = world.server().local_addr();
        let runtime = world.runtime.clone();
        let (client, welcome) = runtime.block_on(async {
            let client = dial(address, &identity).await.map_err(|e| e.to_string())?;
            let welcome = client
                .hello(context(), VERSION, session)
                .await
                .map_err(|e| e.to_string())?
                .map_err(|e| e.to_string())?;
            // Who goes on with a session is the client that began it.
            let mut id = ClientId([0; 16]);
            let begun = session.unwrap_or(welcome.session);
            id.0[..8].copy_from_slice(&begun.0.to_le_bytes());
            client
                .attach(context(), welcome.session, id)
                .await
                .map_err(|e| e.to_string())?
                .map_err(|e| e.to_string())?;
            Ok::<_, String>((client, welcome))
        })?;
        // And does not use its numbers again.
        let first = if session.is_some() { 1000 } else { 1 };
        Ok(Self {
            identity,
            welcome,
            client,
            runtime,
            number: std::sync::atomic::AtomicU64::new(first),
        })
    }

    pub fn id(&self) -> SessionId {
        self.welcome.session
    }

    pub fn ask<T, R>(
        &self,
        call: impl FnOnce(MetadataClient, Context, SessionId) -> R,
    ) -> Result<Reply<T>, RpcError>
    where
        R: Future<Output = Result<Reply<T>, RpcError>>,
    {
        let asked = call(self.client.clone(), context(), self.welcome.session);
        self.runtime.block_on(asked)
    }

    pub fn number(&self) -> u64 {
        self.number
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
    }

    pub fn change(&self, change: Change) -> Reply<Changed> {
        self.change_by(0, self.number(), change)
    }

    pub fn change_by(&self, slot: u32, sequence: u64, change: Change) -> Reply<Changed> {
        self.ask(|c, x, s| async move { c.change(x, s, slot, sequence, change).await })
            .unwrap()
    }

    pub fn recall(&self, slot: u32, sequence: u64) -> Reply<Recalled> {
        self.ask(|c, x, s| async move { c.recall(x, s, slot, sequence).await })
            .unwrap()
    }

    fn inode(&self, change: Change) -> Reply<Inode> {
        match self.change(change)? {
            Changed::Inode(inode) => Ok(*inode),
            other => panic!("{other:?}"),
        }
    }

    pub fn make(&self, parent: InodeNo, name: &str, kind: FileKind, mode: u16) -> Reply<Inode> {
        let mut new = NewFile::of_kind(kind);
        (new.mode, new.uid, new.gid) = (mode, self.welcome.uid, self.welcome.gids[0]);
        self.inode(Change::Make {
            parent,
            name: name.into(),
            new,
        })
    }

    pub fn set(&self, no: InodeNo, set: SetAttr) -> Reply<Inode> {
        self.inode(Change::SetAttributes { no, set })
    }

    pub fn chmod(&self, no: InodeNo, mode: u16) -> Reply<Inode> {
        self.set(no, SetAttr::mode(mode))
    }

    pub fn unlink(&self, parent: InodeNo, name: &str) -> Reply<Changed> {
        self.change(Change::Unlink {
            parent,
            name: name.into(),
        })
    }

    pub fn lookup(&self, parent: InodeNo, name: &str) -> Reply<Inode> {
        let name = name.as_bytes().to_vec();
        self.ask(|c, x, s| async move { c.lookup(x, s, parent, name).await })
            .unwrap()
            .map(|found| found.inode)
    }

    pub fn attributes(&self, no: InodeNo) -> Reply<Inode> {
        self.ask(|c, x, s| async move { c.attributes(x, s, no).await })
            .unwrap()
    }

    pub fn open(&self, no: InodeNo, read: bool, write: bool) -> Reply<Inode> {
        self.open_as(Opening::New(once()), no, Access { read, write })
    }

    pub fn open_as(&self, opening: Opening, no: InodeNo, access: Access) -> Reply<Inode> {
        self.ask(|c, x, s| async move { c.open(x, s, opening, no, access).await })
            .unwrap()
    }

    pub fn close(&self, no: InodeNo) -> Reply<()> {
        self.close_as(once(), no)
    }

    pub fn close_as(&self, once: Once, no: InodeNo) -> Reply<()> {
        self.ask(|c, x, s| async move { c.close(x, s, once, vec![(no, 1)]).await })
            .unwrap()
    }

    pub fn map(&self, no: InodeNo) -> Reply<Map> {
        self.ask(|c, x, s| async move { c.map(x, s, no, 0, 64).await })
            .unwrap()
    }

    pub fn grant(&self, blocks: u32) -> Reply<Granted> {
        self.ask(|c, x, s| async move { c.grant(x, s, blocks).await })
            .unwrap()
    }

    pub fn sync(&self) -> Reply<u64> {
        self.ask(|c, x, s| async move { c.sync(x, s).await })
            .unwrap()
    }

    pub fn heartbeat(&self) -> Reply<Heartbeat> {
        self.ask(|c, x, s| async move { c.beat(x, s).await })
            .unwrap()
    }

    pub fn place(&self, no: InodeNo, written: Vec<Written>) -> Reply<u64> {
        let committed =
            self.ask(|c, x, s| async move { c.place(x, s, no, written, None, false).await });
        committed.unwrap().map(|answer| answer.stamp)
    }

    /// Seals and writes one block of `byte` to the `at`th block of a grant; what to place.
    pub fn write_block(
        &self,
        world: &World,
        granted: &Granted,
        at: u32,
        offset: u64,
        byte: u8,
    ) -> Result<Written, DiskError> {
        let mut block = vec![byte; BLOCK_LEN];
        let position = granted.position + at;
        let nonce = room::nonce_part(granted.append_nonces).unwrap();
        let mut cipher = granted.place.keys.cipher();
        let tag = cipher.seal(nonce, position, &mut block).unwrap();
        let disk = world.disk(&granted.ticket).client();
        let boot = disk.write(
            &granted.ticket,
            granted.place.start + u64::from(position),
            &block,
        )?;
        Ok(Written {
            grant: granted.grant,
            boot,
            durable: false,
            extent: WrittenExtent {
                offset,
                sealed: room::Sealed {
                    segment: granted.place.segment,
                    position,
                    blocks: 1,
                    nonce,
                    tags: room::Tags::from([tag]),
                    digests: vec![room::unit_digest(&block)],
                },
                end: offset + BLOCK_LEN as u64,
            },
        })
    }

    /// Writes one block of `byte` into a file, and waits until it is durable.
    pub fn write(&self, world: &World, no: InodeNo, byte: u8) -> Granted {
        let granted = self.grant(16).unwrap();
        let written = self.write_block(world, &granted, 0, 0, byte).unwrap();
        self.place(no, vec![written]).unwrap();
        self.sync().unwrap();
        granted
    }

    /// Reads the first block of a file with what a map says.
    pub fn read_by(&self, world: &World, map: &Map) -> Result<u8, DiskError> {
        let (_, extents) = &map.chunks[0];
        let (range, tag) = extents[0].units().next().unwrap();
        let nonce = extents[0].nonce;
        let place = map
            .segments
            .iter()
            .find(|s| s.segment == range.segment)
            .unwrap();
        let ticket = map
            .tickets
            .iter()
            .find(|t| t.capability.disk == place.disk)
            .unwrap();
        let mut block = vec![0; range.blocks as usize * BLOCK_LEN];
        world.disk(ticket).client().read(
            ticket,
            place.start + u64::from(range.position),
            &mut block,
        )?;
        let mut cipher = place.keys.cipher();
        cipher
            .open(nonce, range.position, &tag, &mut block)
            .unwrap();
        Ok(block[0])
    }
}

/// Waits until `done`; fails the test after a long time.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub const ROOT: InodeNo = InodeNo::ROOT;

pub fn posix<T: std::fmt::Debug>(reply: Reply<T>) -> Posix {
    match reply {
        Err(Refusal::Posix(kind)) => kind,
        other => panic!("{other:?}"),
    }
}

/// A world with a root client, a directory `d` that alice owns, alice, and bob who shares a group with her.
pub fn people(lease: Duration) -> (World, Raw, Raw, Raw, InodeNo) {
    let world = World::with_lease(1, lease);
    let root = world.client("root", 0, &[0]);
    let alice = world.client("alice", 1000, &[1000, 50]);
    let bob = world.client("bob", 1001, &[1001, 50]);
    let d = root.make(ROOT, "d", FileKind::Directory, 0o755).unwrap().no;
    root.set(d, SetAttr::owner(Some(1000), Some(50))).unwrap();
    (world, root, alice, bob, d)
}
