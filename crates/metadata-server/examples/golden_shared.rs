//! Creates the golden shared room that `tests/golden.rs` opens: once for each format, never again after its release.
//!
//! `cargo run -p strongroom-metadata-server --example golden_shared -- crates/metadata-server/tests/golden/DIRECTORY`: the directory must not exist.
//! It gets the room, its disk's store without the zeros at the end, and the disk's key.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use device::FileDevice;
use metadata_client::{ClientOptions, SharedRoom};
use metadata_server::enrol::Disk;
use metadata_server::server::{Config, MetadataServer};
use netdisk::server::{Config as DiskConfig, Server as DiskServer};
use netdisk::{DiskAddress, KeyFile, Protection, Store, Surroundings};
use room::{
    Credential, FileKind, FileSystem, InodeNo, NewCredential, NewFile, NewRoom, OpenOptions, Room,
    Secret, Suite,
};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let state = tempfile::tempdir()?;
    std::fs::create_dir(&dir)?;
    let store = dir.join("disk.store");
    let device = Arc::new(FileDevice::create(&store, (8 << 20) + 4096)?);
    let keys = KeyFile::generate()?;
    Store::init(&*device, keys.id, false)?;
    keys.write(&dir.join("disk.key"))?;
    let surroundings = Surroundings {
        origin: b"golden".to_vec(),
        failures: None,
    };
    let opened = Store::open(device, surroundings)?;
    let disk_server = DiskServer::start(DiskConfig::default(), opened, &keys)?;

    let options = OpenOptions::with_state_dir(state.path());
    let key = || Secret::from(vec![7; 32]);
    let mut new = NewRoom::with_credential(NewCredential::RawKey(key()));
    new.suite = Some(Suite::Aes256Gcm);
    new.open = options.clone();
    (new.uid, new.gid) = (0, 0);
    Room::create(&dir.join("room"), new)?.close()?;
    let mut config = Config::new(dir.join("room"));
    config.open = options;
    config.disks = vec![Disk {
        name: "disk".into(),
        address: DiskAddress {
            id: keys.id,
            address: disk_server.local_addr().to_string(),
            protection: Protection::Secure,
            certificate: Some(keys.certificate_hash),
        },
        key: keys.key.clone(),
    }];
    let server = MetadataServer::start(config, Credential::RawKey(key()))?;
    let (_, root) = server.add_user("root", 0, &[0])?;
    let address = server.local_addr().to_string();
    let client = SharedRoom::connect(ClientOptions::new(address), &root)?;
    let make = |name: &[u8]| {
        let new = NewFile {
            mode: 0o644,
            uid: 0,
            gid: 0,
            ..NewFile::of_kind(FileKind::Regular)
        };
        client.make(InodeNo::ROOT, name, &new)
    };
    let letter = make(b"letter")?.no;
    client.write(letter, 0, b"Dear reader, this room is on a network disk.\n")?;
    let numbers = make(b"numbers")?.no;
    let bytes: Vec<u8> = (0..30_000_u32).flat_map(u32::to_le_bytes).collect();
    client.write(numbers, 0, &bytes)?;
    client.fsync(letter)?;
    client.fsync(numbers)?;
    client.write(numbers, 16_000, &[0xee; 1000])?;
    client.fsync(numbers)?;
    let copy = make(b"copy")?.no;
    client.copy_range(numbers, 0, copy, 1 << 20, 65_536)?;
    client.fsync(copy)?;
    client.end()?;
    server.stop()?;
    drop(disk_server);
    let mut stored = std::fs::read(&store)?;
    let end = stored
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    stored.truncate(end);
    std::fs::write(&store, stored)?;
    std::fs::remove_file(dir.join("room/lock"))?;
    Ok(())
}
