//! A room that two users share: a network disk, a metadata server and two clients, all on loopback.
//!
//! `cargo run -p strongroom-metadata-server --example share_room -- DIRECTORY`: the directory must exist and be empty. On machines of their own
//! these parts are `strongroom disk serve`, `strongroom metadata serve` and `strongroom mount`: docs/shared-storage.md.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::FileDevice;
use metadata_client::{ClientOptions, SharedRoom};
use metadata_server::enrol::Disk;
use metadata_server::server::{Config, MetadataServer};
use netdisk::server::{Config as DiskConfig, Server as DiskServer};
use netdisk::{DiskAddress, KeyFile, Protection, Store, Surroundings};
use room::{
    Credential, FileKind, FileSystem, InodeNo, NewCredential, NewFile, NewRoom, Room, Secret,
    SetAttr,
};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let (disk_server, disk) = disk(&dir.join("disk.store"))?;

    // The server's room keeps names and rights; its file data goes to the disks. Sparse: the store grows as it is written.
    let key = || Secret::from(vec![7; 32]);
    let new = NewRoom::with_credential(NewCredential::RawKey(key()));
    Room::create(&dir.join("room"), new)?.close()?;
    let mut config = Config::new(dir.join("room"));
    config.disks = vec![disk];
    let server = MetadataServer::start(config, Credential::RawKey(key()))?;

    // An identity is a user's certificate and key. Root may write to the top directory, as in every file system.
    let (_, root) = server.add_user("root", 0, &[0])?;
    let (_, ada) = server.add_user("ada", 1001, &[1001])?;
    let connect = |identity| {
        SharedRoom::connect(
            ClientOptions::new(server.local_addr().to_string()),
            identity,
        )
    };
    // `mount::mount` takes an `Arc<SharedRoom>` as it takes a room. Here it is used directly.
    let (first, second) = (connect(&root)?, connect(&ada)?);
    let file = first.make(
        InodeNo::ROOT,
        b"letter.txt",
        &NewFile::of_kind(FileKind::Regular),
    )?;
    first.write(file.no, 0, b"hello")?;
    // Durable on the disk and committed to the file when it returns: from here on the other client reads it.
    first.fsync(file.no)?;

    let found = second.lookup(InodeNo::ROOT, b"letter.txt")?;
    let mut text = [0; 5];
    second.read(found.no, 0, &mut text)?;
    println!("{}", String::from_utf8_lossy(&text));

    // The server takes the right away on the disk before this returns.
    first.set_attributes(file.no, &SetAttr::mode(0o600))?;
    println!(
        "after chmod 600: refused {}",
        second.read(found.no, 0, &mut text).is_err()
    );

    second.end()?;
    first.end()?;
    server.stop()?;
    drop(disk_server);
    Ok(())
}

/// A served disk of 256 MiB, and its entry for the metadata server.
fn disk(path: &Path) -> Result<(DiskServer, Disk), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, (256 << 20) + 4096)?);
    let keys = KeyFile::generate()?;
    Store::init(&*device, keys.id, false)?;
    let surroundings = Surroundings {
        origin: std::fs::read("/proc/sys/kernel/random/boot_id")?,
        failures: None,
    };
    let server = DiskServer::start(
        DiskConfig::default(),
        Store::open(device, surroundings)?,
        &keys,
    )?;
    let address = DiskAddress {
        id: keys.id,
        address: server.local_addr().to_string(),
        protection: Protection::Secure,
        certificate: Some(keys.certificate_hash),
    };
    let entry = Disk {
        name: "disk".into(),
        address,
        key: keys.key,
    };
    Ok((server, entry))
}
