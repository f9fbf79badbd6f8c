//! Shared rooms of released formats are served for ever, or refused by name until they were rekeyed.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::FileDevice;
use metadata_client::{ClientOptions, SharedRoom};
use metadata_server::enrol::{self, Disk};
use metadata_server::server::{Beside, Config, InDirectory, MetadataServer, ServerError};
use netdisk::server::{Config as DiskConfig, Server as DiskServer};
use netdisk::{BLOCK_LEN, DiskAddress, KeyFile, Protection, Store, Surroundings};
use room::{Credential, FileSystem, InodeNo, OpenOptions, Secret};

/// Length of the disk's store.
const STORE_LEN: u64 = (8 << 20) + BLOCK_LEN as u64;

struct Golden {
    dir: tempfile::TempDir,
    keys: KeyFile,
    disk: Option<DiskServer>,
}

fn credential() -> Credential {
    Credential::RawKey(Secret::from(vec![7; 32]))
}

impl Golden {
    fn of(name: &str) -> Self {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(name);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("room/segments")).unwrap();
        for entry in fs::read_dir(golden.join("room")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(
                    entry.path(),
                    dir.path().join("room").join(entry.file_name()),
                )
                .unwrap();
            }
        }
        let store = dir.path().join("disk.store");
        fs::copy(golden.join("disk.store"), &store).unwrap();
        let file = fs::File::options().write(true).open(&store).unwrap();
        file.set_len(STORE_LEN).unwrap();
        let keys = fs::read_to_string(golden.join("disk.key")).unwrap();
        Self {
            dir,
            keys: KeyFile::parse(&keys).unwrap(),
            disk: None,
        }
    }

    fn room(&self) -> PathBuf {
        self.dir.path().join("room")
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("disk.store")
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::with_state_dir(self.dir.path().join("state"))
    }

    /// Starts the disk, and returns where it is.
    fn serve_disk(&mut self) -> Disk {
        let device = Arc::new(FileDevice::open(&self.store(), device::Access::ReadWrite).unwrap());
        let surroundings = Surroundings {
            origin: b"golden".to_vec(),
            failures: None,
        };
        let store = Store::open(device, surroundings).unwrap();
        let server = DiskServer::start(DiskConfig::default(), store, &self.keys).unwrap();
        let disk = Disk {
            name: "disk".into(),
            address: DiskAddress {
                id: self.keys.id,
                address: server.local_addr().to_string(),
                protection: Protection::Secure,
                certificate: Some(self.keys.certificate_hash),
            },
            key: self.keys.key.clone(),
        };
        self.disk = Some(server);
        disk
    }

    fn serve(&self, disk: &Disk) -> Result<MetadataServer, ServerError> {
        let mut config = Config::new(self.room());
        config.open = self.options();
        config.disks = vec![disk.clone()];
        MetadataServer::start(config, credential())
    }

    /// Says where the disk is, in a room that is open for that only.
    fn say_where(&self, disk: &Disk) {
        let options = OpenOptions {
            without_position_keys: true,
            ..self.options()
        };
        let beside = Beside::open(&self.room(), &credential(), options, &InDirectory).unwrap();
        beside.add_disk(disk.clone()).unwrap();
        beside.room.close().unwrap();
    }
}

/// Reads everything in the room as a client, and writes to it.
fn assert_whole(server: &MetadataServer) {
    let (_, root) = server.add_user("visitor", 0, &[0]).unwrap();
    let address = server.local_addr().to_string();
    let client = SharedRoom::connect(ClientOptions::new(address), &root).unwrap();
    let read = |name: &[u8]| {
        let inode = client.lookup(InodeNo::ROOT, name).unwrap();
        let mut bytes = vec![0; inode.size as usize];
        assert_eq!(client.read(inode.no, 0, &mut bytes).unwrap(), bytes.len());
        (inode.no, bytes)
    };
    let (letter, text) = read(b"letter");
    assert_eq!(text, b"Dear reader, this room is on a network disk.\n");
    let mut numbers: Vec<u8> = (0..30_000_u32).flat_map(u32::to_le_bytes).collect();
    numbers[16_000..17_000].fill(0xee);
    assert!(read(b"numbers").1 == numbers);
    let mut copy = vec![0; 1 << 20];
    copy.extend(&numbers[..65_536]);
    assert!(read(b"copy").1 == copy);
    client.write(letter, 5, b"writer").unwrap();
    client.fsync(letter).unwrap();
    assert_eq!(
        read(b"letter").1,
        b"Dear writer, this room is on a network disk.\n"
    );
    client.end().unwrap();
}

fn words(error: &dyn Error) -> String {
    error.to_string()
}

#[test]
fn a_shared_room_from_before_position_keys_is_refused_by_name_until_it_is_rekeyed() {
    let mut golden = Golden::of("segment-keys");
    let disk = golden.serve_disk();
    let refused = golden.serve(&disk).unwrap_err();
    assert!(words(&refused).contains("position-keys"), "{refused}");
    let refused = Beside::open(
        &golden.room(),
        &credential(),
        golden.options(),
        &InDirectory,
    )
    .unwrap_err();
    assert!(words(&refused).contains("strongroom rekey"), "{refused}");

    // The disk is not where the room remembers it: nothing is changed.
    let header = fs::read(golden.room().join("header.json")).unwrap();
    let rekey = || {
        metadata_server::server::rekey(
            &golden.room(),
            &credential(),
            false,
            golden.options(),
            &InDirectory,
            &|_, _| true,
        )
    };
    let away = rekey().unwrap_err();
    assert!(matches!(away, ServerError::DiskAway(_)), "{away}");
    assert_eq!(fs::read(golden.room().join("header.json")).unwrap(), header);

    golden.say_where(&disk);
    let report = rekey().unwrap();
    assert!(
        report.finished && report.segments_resealed > 0,
        "{report:?}"
    );
    let text = fs::read_to_string(golden.room().join("header.json")).unwrap();
    assert!(text.contains("\"position_keys_from\": 2"), "{text}");
    let server = golden.serve(&disk).unwrap();
    assert_whole(&server);
    server.stop().unwrap();
    // It stays so.
    let beside = Beside::open(
        &golden.room(),
        &credential(),
        golden.options(),
        &InDirectory,
    )
    .unwrap();
    assert_eq!(enrol::disks(&beside.room).unwrap().len(), 1);
}

#[test]
fn a_shared_room_with_position_keys_is_served() {
    let mut golden = Golden::of("position-keys");
    let disk = golden.serve_disk();
    let server = golden.serve(&disk).unwrap();
    assert_whole(&server);
    server.stop().unwrap();
}
