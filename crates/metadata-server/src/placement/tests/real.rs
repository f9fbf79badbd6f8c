//! The placement over disks that are served on loopback, with a borrower who reaches them by itself.

use std::io::{Read, Write};
use std::sync::atomic::AtomicU64;

use device::{Device, MemoryDevice};
use netdisk::server::{Config, Server};
use netdisk::{
    Admin, Capability, CapabilityId, ClientId, DiskAddress, DiskClient, DiskError, GroupId,
    KeyFile, Mode, Protection, Store, Surroundings, Ticket,
};
use room::{FileSystem as _, Piece, Sealed, UNIT_BLOCKS, WriteGrant, WrittenExtent};

use self::relay::Relay;
use super::rooms::{assert_whole, content, made, opened};
use super::*;

/// What the relay has to know of messages.
mod raw {
    pub(crate) const HEAD: usize = 120;
    pub(crate) const REPLY: usize = 112;
}
#[path = "../../../../netdisk/tests/common/relay.rs"]
#[allow(dead_code, reason = "another crate's tests use the rest")]
mod relay;

/// No test waits for this long unless it fails.
const LONG: Duration = Duration::from_secs(20);
const SLOTS: u64 = 3;

/// A disk in memory, served on loopback.
#[derive(Debug)]
struct Served {
    keys: KeyFile,
    device: Arc<dyn Device>,
    protection: Protection,
    server: Mutex<Option<Server>>,
    address: Mutex<String>,
}

impl Served {
    fn new(protection: Protection) -> Self {
        let keys = KeyFile::generate().unwrap();
        let len = (1 + SLOTS * SLOT_BLOCKS) * BLOCK_LEN as u64;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len as usize));
        Store::init(&*device, keys.id, false).unwrap();
        let served = Self {
            keys,
            device,
            protection,
            server: Mutex::default(),
            address: Mutex::new("127.0.0.1:0".into()),
        };
        served.start(b"a machine");
        served
    }

    /// Serves it on the port it had. Another `machine` means a restarted one.
    fn start(&self, machine: &[u8]) {
        let config = Config {
            listen: self.address.lock().clone(),
            protection: self.protection,
            ..Config::default()
        };
        let surroundings = Surroundings {
            origin: machine.to_vec(),
            failures: None,
        };
        let store = Store::open(self.device.clone(), surroundings).unwrap();
        let server = Server::start(config, store, &self.keys).unwrap();
        *self.address.lock() = server.local_addr().to_string();
        *self.server.lock() = Some(server);
    }

    fn restart(&self, machine: &[u8]) {
        if let Some(mut server) = self.server.lock().take() {
            server.stop(LONG).unwrap();
        }
        self.start(machine);
    }

    fn address(&self) -> DiskAddress {
        DiskAddress {
            id: self.keys.id,
            address: self.address.lock().clone(),
            protection: self.protection,
            certificate: Some(self.keys.certificate_hash),
        }
    }

    fn client(&self) -> DiskClient {
        DiskClient::new(self.address(), LONG)
    }

    fn admin(&self) -> Admin {
        Admin::new(self.address(), self.keys.key.clone(), LONG)
    }
}

/// Gives each disk one group, and another when it does not know that.
#[derive(Debug)]
struct Groups {
    disks: Vec<Arc<Served>>,
    group: AtomicU64,
}

impl Groups {
    fn disk(&self, id: DiskId) -> &Arc<Served> {
        self.disks.iter().find(|d| d.keys.id == id).unwrap()
    }

    fn mint(&self, client: u64, disk: DiskId, mode: Mode, extents: Vec<BlockExtent>) -> Ticket {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).unwrap();
        let clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        self.disk(disk).keys.key.ticket(Capability {
            disk,
            client: ClientId(client),
            group: GroupId(self.group.load(Ordering::SeqCst)),
            id: CapabilityId(client as u32),
            mode,
            expires: clock + 600,
            nonce,
            extents,
        })
    }
}

impl Keeper for Groups {
    fn ticket(&self, disk: DiskId, refused: bool) -> Result<Ticket, DiskError> {
        if refused {
            // Fresh for all of them: what was given before is worth nothing.
            let group = GroupId(1 + self.group.fetch_add(1, Ordering::SeqCst));
            for disk in &self.disks {
                disk.admin().set_groups(&[group])?;
            }
        }
        let all = BlockExtent {
            start: 0,
            blocks: SLOTS * SLOT_BLOCKS,
        };
        Ok(self.mint(0, disk, Mode::ReadWrite, vec![all]))
    }

    fn revoke(&self, disk: DiskId, _: &[BlockExtent]) -> Result<(), DiskError> {
        let group = GroupId(self.group.load(Ordering::SeqCst));
        self.disk(disk).admin().revoke(group, &[CapabilityId(7)])
    }

    fn renew(&self, disk: DiskId) -> Result<(), DiskError> {
        self.ticket(disk, true).map(drop)
    }
}

struct Network {
    keeper: Arc<Groups>,
    storage: NetStorage,
    host: Arc<dyn Storage>,
}

impl Network {
    fn new(protection: Protection) -> Self {
        let disks = (0..2).map(|_| Arc::new(Served::new(protection)));
        let keeper = Arc::new(Groups {
            disks: disks.collect(),
            group: AtomicU64::new(1),
        });
        let host: Arc<dyn Storage> = Arc::new(storage::testing::MemoryStorage::new());
        let network = Self {
            keeper,
            storage: NetStorage::open(host.clone(), LONG).unwrap(),
            host,
        };
        network.attach();
        network
    }

    fn attach(&self) {
        for disk in &self.keeper.disks {
            let link = NetworkDisk {
                client: disk.client(),
                admin: disk.admin(),
            };
            let blocks = SLOTS * SLOT_BLOCKS;
            self.storage
                .attach(disk.keys.id, Arc::new(link), self.keeper.clone(), blocks);
        }
    }

    fn again(&mut self) {
        self.storage = NetStorage::open(self.host.clone(), LONG).unwrap();
        self.attach();
    }

    /// Seals blocks and writes them to the disk, as client 7 with a capability for the grant.
    fn borrow(&self, room: &room::Room, grant: &WriteGrant, plain: &[u8]) -> (Boot, WrittenExtent) {
        let WriteGrant {
            segment,
            position,
            blocks,
            ..
        } = *grant;
        let granted = position..position + blocks;
        let keys = room.position_keys(segment, &[granted]).unwrap();
        let keys = keys.unwrap();
        let mut cipher = keys.cipher();
        let mut sealed = plain.to_vec();
        sealed.resize(plain.len().next_multiple_of(BLOCK_LEN), 0);
        let nonce = grant.nonce_part().unwrap();
        let tags = (position..)
            .step_by(UNIT_BLOCKS as usize)
            .zip(sealed.chunks_mut(UNIT_BLOCKS as usize * BLOCK_LEN))
            .map(|(at, unit)| cipher.seal(nonce, at, unit).unwrap())
            .collect();
        let units = sealed.chunks(UNIT_BLOCKS as usize * BLOCK_LEN);
        let digests = units.map(room::unit_digest).collect();
        let (disk, start) = self.storage.locate(segment).unwrap();
        let extent = BlockExtent {
            start: start + u64::from(position),
            blocks: u64::from(blocks),
        };
        let ticket = self.keeper.mint(7, disk, Mode::Write, vec![extent]);
        let client = self.keeper.disk(disk).client();
        let boot = client.write(&ticket, extent.start, &sealed).unwrap();
        let extent = WrittenExtent {
            offset: 0,
            sealed: Sealed {
                segment,
                position,
                blocks: (sealed.len() / BLOCK_LEN) as u32,
                nonce,
                tags,
                digests,
            },
            end: plain.len() as u64,
        };
        (boot, extent)
    }

    /// Reads a file's first chunk from the disks, as another client.
    fn read(&self, room: &room::Room, path: &str) -> Vec<u8> {
        let no = room.resolve(path.as_ref(), true).unwrap();
        let size = room.attributes(no).unwrap().size as usize;
        let mut data = vec![0; size];
        let (_, chunk) = &room.maps(no, 0, 1).unwrap()[0];
        let mut at = 0;
        for piece in chunk.pieces(0, size) {
            if let Piece::Stored(stored) = piece {
                let segment = stored.range.segment;
                let range = stored.range;
                let positions = range.position..range.position + range.blocks;
                let keys = room.position_keys(segment, &[positions]).unwrap();
                let keys = keys.unwrap();
                let mut cipher = keys.cipher();
                let (disk, start) = self.storage.locate(segment).unwrap();
                let extent = BlockExtent {
                    start: start + u64::from(stored.range.position),
                    blocks: u64::from(stored.range.blocks),
                };
                let ticket = self.keeper.mint(8, disk, Mode::Read, vec![extent]);
                let client = self.keeper.disk(disk).client();
                let mut units = vec![0; extent.blocks as usize * BLOCK_LEN];
                client.read(&ticket, extent.start, &mut units).unwrap();
                let unit = UNIT_BLOCKS as usize * BLOCK_LEN;
                let positions = (range.position..).step_by(UNIT_BLOCKS as usize);
                let proofs = stored.proofs;
                let units_of = units.chunks_mut(unit).zip(proofs.tags).zip(positions);
                for (index, ((unit, tag), at)) in units_of.enumerate() {
                    room::check_digest(proofs, index, unit, true).unwrap();
                    cipher.open(proofs.nonce, at, tag, unit).unwrap();
                }
                data[at..at + stored.len].copy_from_slice(&units[stored.skip..][..stored.len]);
            }
            at += piece.len();
        }
        data
    }
}

fn lives(protection: Protection) {
    let mut network = Network::new(protection);
    let room = made(&network.storage);
    for n in 0..20 {
        room.write_file(format!("/{n}"), &content(n)).unwrap();
    }
    room.sync().unwrap();
    // Killed and started again: nothing is lost, and it knows no group any more.
    for disk in &network.keeper.disks {
        disk.restart(b"a machine");
    }
    assert!(room.read_file("/3").unwrap() == content(3));
    let grant = room.grant(0, 100).unwrap();
    let bytes = content(99)[..300_001].to_vec();
    let (boot, extent) = network.borrow(&room, &grant, &bytes);
    room.write_file("/granted", b"").unwrap();
    let no = room.resolve("/granted".as_ref(), true).unwrap();
    network.storage.wrote(grant.segment, boot).unwrap();
    let stamp = room.place(grant.id, no, &[extent]).unwrap();
    room.sync().unwrap();
    assert!(room.settled() >= stamp);
    assert!(network.read(&room, "/granted") == bytes);
    assert!(room.read_file("/granted").unwrap() == bytes);
    room.settle_grant(grant.id);
    for n in 1..20 {
        room.unlink(room::InodeNo::ROOT, n.to_string().as_bytes())
            .unwrap();
    }
    room.compact(90, &|_, _| true).unwrap();
    room.tend().unwrap();
    assert_eq!(network.storage.release(), 0);
    assert!(network.storage.list(SEGMENTS_DIR).unwrap().len() <= 2);
    room.close().unwrap();
    network.again();
    let room = opened(&network.storage);
    assert!(room.read_file("/0").unwrap() == content(0));
    assert!(network.read(&room, "/granted") == bytes);
    assert_whole(&room);
}

#[test]
fn a_room_lives_on_secure_disks_that_are_served() {
    lives(Protection::Secure);
}

#[test]
fn a_room_lives_on_private_disks_that_are_served() {
    lives(Protection::Private);
}

#[test]
fn data_written_before_a_restart_of_the_disks_machine_is_not_committed() {
    let network = Network::new(Protection::Secure);
    let room = made(&network.storage);
    room.write_file("/f", b"old").unwrap();
    room.sync().unwrap();
    // Disks take turns: the third segment is on the disk of the first, to which the room itself writes.
    let _ = room.grant(0, 8).unwrap();
    let grant = room.grant(1, 8).unwrap();
    // A grant alone is nothing to commit.
    room.write_file("/other", b"other").unwrap();
    room.sync().unwrap();
    let (boot, _) = network.borrow(&room, &grant, b"new");
    let (disk, _) = network.storage.locate(grant.segment).unwrap();
    network.keeper.disk(disk).restart(b"a restarted machine");
    assert_eq!(network.storage.locate(SegmentNo(1)).unwrap().0, disk);
    // The room goes on, and so learns of it.
    room.write_file("/g", &content(1)).unwrap();
    room.sync().unwrap();
    assert!(matches!(
        network.storage.wrote(grant.segment, boot),
        Err(DurabilityError::Lost)
    ));
    let other = room.grant(1, 8).unwrap();
    let (boot, extent) = network.borrow(&room, &other, b"again");
    network.storage.wrote(other.segment, boot).unwrap();
    let no = room.resolve("/f".as_ref(), true).unwrap();
    room.place(other.id, no, &[extent]).unwrap();
    room.sync().unwrap();
    assert!(network.read(&room, "/f") == b"again");
}

/// Somebody on the network keeps a write of the metadata server's own, which repeats it. The blocks become another segment's, and then
/// what was kept arrives.
#[test]
fn a_write_of_the_servers_that_somebody_held_back_does_not_land_in_another_segment() {
    let network = Network::new(Protection::Secure);
    let served = network.keeper.disks[0].clone();
    let direct = served.address.lock().clone();
    let relay = Relay::before(direct.parse().unwrap());
    let through = DiskAddress {
        address: relay.address.to_string(),
        ..served.address()
    };
    let link = NetworkDisk {
        client: DiskClient::new(through, LONG),
        admin: served.admin(),
    };
    let (id, blocks) = (served.keys.id, SLOTS * SLOT_BLOCKS);
    let keeper = network.keeper.clone();
    network
        .storage
        .attach(id, Arc::new(link), keeper.clone(), blocks);

    let at = |no| network.storage.locate(SegmentNo(no)).unwrap();
    let mut numbers = 1..;
    let first = numbers
        .find(|no| {
            create(&network.storage, *no).unwrap();
            at(*no).0 == id
        })
        .unwrap();
    let place = at(first);
    let segment = network.storage.open(&path(first), OpenMode::ReadWrite);
    let segment = segment.unwrap();
    segment.write_at(&[1; BLOCK_LEN], 0).unwrap();
    let kept: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let keeps = kept.clone();
    relay.on_request(move |request| {
        const WRITE: u8 = 2;
        let mut kept = keeps.lock();
        if request[5] == WRITE && kept.is_none() {
            *kept = Some(request.clone());
            // Noise instead: the server asks again on another connection.
            request[0] = 0;
        }
    });
    segment.write_at(&[2; BLOCK_LEN], BLOCK_LEN as u64).unwrap();
    let kept = kept.lock().take().unwrap();

    network.storage.remove(&path(first)).unwrap();
    assert_eq!(network.storage.release(), 0);
    let later = numbers
        .find(|no| {
            create(&network.storage, *no).unwrap();
            at(*no) == place
        })
        .unwrap();
    let segment = network.storage.open(&path(later), OpenMode::ReadWrite);
    let segment = segment.unwrap();
    segment.write_at(&[3; BLOCK_LEN], BLOCK_LEN as u64).unwrap();

    let mut socket = std::net::TcpStream::connect(&direct).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.write_all(&kept).unwrap();
    // Its answer: what becomes of it is settled.
    socket.read_exact(&mut [0; raw::REPLY]).unwrap();
    let mut block = [0; BLOCK_LEN];
    segment.read_at(&mut block, BLOCK_LEN as u64).unwrap();
    assert!(block == [3; BLOCK_LEN], "it holds {}", block[0]);
}
