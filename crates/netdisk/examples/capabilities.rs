//! A network disk, and a client that may read and write eight of its blocks until that right is revoked.
//!
//! `cargo run -p strongroom-netdisk --example capabilities -- DIRECTORY`: `DIRECTORY/disk.store` must not exist. All on loopback.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::{Device, FileDevice};
use netdisk::server::{Config, Server};
use netdisk::{
    Admin, BlockExtent, Capability, CapabilityId, ClientId, DiskAddress, DiskClient, GroupId,
    KeyFile, Mode, Protection, Store, Surroundings,
};

const LONG: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let device: Arc<dyn Device> = Arc::new(FileDevice::create(&dir.join("disk.store"), 4 << 20)?);

    // The disk's machine: the keys are the disk's identity. Its metadata server gets a copy over a confidential channel.
    let keys = KeyFile::generate()?;
    Store::init(&*device, keys.id, false)?;
    // After a restart of the machine unflushed data may be lost. The boot id shows the disk that it was restarted.
    let surroundings = Surroundings {
        origin: std::fs::read("/proc/sys/kernel/random/boot_id")?,
        failures: None,
    };
    let config = Config::default();
    let protection = config.protection;
    let mut server = Server::start(config, Store::open(device, surroundings)?, &keys)?;

    // The metadata server: it says which groups of capabilities are valid, and issues capabilities. The disk keeps no list of users.
    let address = DiskAddress {
        id: keys.id,
        address: server.local_addr().to_string(),
        protection,
        certificate: Some(keys.certificate_hash),
    };
    let admin = Admin::new(address.clone(), keys.key.clone(), LONG);
    admin.set_groups(&[GroupId(1)])?;
    let capability = Capability {
        disk: keys.id,
        client: ClientId(1),
        group: GroupId(1),
        id: CapabilityId(1),
        mode: Mode::ReadWrite,
        expires: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 3600,
        // Random in a real server: the client's secret is derived from all of this.
        nonce: [1; 16],
        extents: vec![BlockExtent {
            start: 0,
            blocks: 8,
        }],
    };
    let ticket = keys.key.ticket(capability);

    // The client: it has the ticket, and no other key.
    let client = DiskClient::new(address, LONG);
    client.write(&ticket, 3, &[7; 4096])?;
    client.flush(&ticket)?;
    let mut block = [0; 4096];
    client.read(&ticket, 3, &mut block)?;
    println!("read back: {}", block == [7; 4096]);
    println!(
        "outside: {}",
        client.read(&ticket, 8, &mut block).unwrap_err()
    );

    // When this returns, no request under the capability is running or can begin.
    admin.revoke(GroupId(1), &[CapabilityId(1)])?;
    println!(
        "revoked: {}",
        client.read(&ticket, 3, &mut block).unwrap_err()
    );
    server.stop(LONG)?;
    // What this disk requires of requests on the network.
    println!(
        "protection: {}",
        if protection == Protection::Open {
            "none"
        } else {
            "on"
        }
    );
    Ok(())
}
