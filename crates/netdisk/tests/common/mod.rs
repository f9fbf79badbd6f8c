//! A disk in memory, served on loopback, and what a metadata server would do with it.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::{Device, MemoryDevice};
use netdisk::server::{Config, Server};
use netdisk::*;

/// No test waits for this long unless it fails.
pub const LONG: Duration = Duration::from_secs(20);
/// Blocks of the disk.
pub const BLOCKS: u64 = 1023;

pub struct Disk {
    pub keys: KeyFile,
    pub device: Arc<dyn Device>,
    pub config: Config,
    pub server: Server,
}

impl Disk {
    pub fn new(protection: Protection) -> Self {
        Self::on(Arc::new(MemoryDevice::new(4 << 20)), protection)
    }

    pub fn on(device: Arc<dyn Device>, protection: Protection) -> Self {
        Self::with(
            device,
            Config {
                protection,
                ..Config::default()
            },
        )
    }

    pub fn with(device: Arc<dyn Device>, config: Config) -> Self {
        let keys = KeyFile::generate().unwrap();
        Store::init(&*device, keys.id, false).unwrap();
        let server = serve(&device, &config, &keys);
        Self {
            keys,
            device,
            config,
            server,
        }
    }

    /// Ends the server, and starts another on the same port.
    pub fn restart(&mut self) {
        let address = self.server.local_addr();
        self.server.stop(LONG).unwrap();
        self.config.listen = address.to_string();
        self.server = serve(&self.device, &self.config, &self.keys);
    }

    pub fn address(&self) -> DiskAddress {
        DiskAddress {
            id: self.keys.id,
            address: self.server.local_addr().to_string(),
            protection: self.config.protection,
            certificate: Some(self.keys.certificate_hash),
        }
    }

    pub fn client(&self) -> DiskClient {
        DiskClient::new(self.address(), LONG)
    }

    pub fn admin(&self) -> Admin {
        Admin::new(self.address(), self.key(), LONG)
    }

    pub fn key(&self) -> DiskKey {
        self.keys.key.clone()
    }

    /// A capability for these blocks, of group 1.
    pub fn ticket(&self, id: u32, mode: Mode, extents: &[(u64, u64)]) -> Ticket {
        self.keys.key.ticket(self.capability(id, mode, extents))
    }

    pub fn capability(&self, id: u32, mode: Mode, extents: &[(u64, u64)]) -> Capability {
        Capability {
            disk: self.keys.id,
            client: ClientId(7),
            group: GroupId(1),
            id: CapabilityId(id),
            mode,
            expires: now() + 3600,
            nonce: [id as u8; 16],
            extents: extents
                .iter()
                .map(|(start, blocks)| BlockExtent {
                    start: *start,
                    blocks: *blocks,
                })
                .collect(),
        }
    }

    /// Every byte that clients see.
    pub fn contents(&self) -> Vec<u8> {
        let mut out = vec![0; self.device.len() as usize - 4096];
        self.device.read_at(&mut out, 4096).unwrap();
        out
    }
}

pub fn serve(device: &Arc<dyn Device>, config: &Config, keys: &KeyFile) -> Server {
    let surroundings = Surroundings {
        origin: b"this machine".to_vec(),
        failures: None,
    };
    let store = Store::open(device.clone(), surroundings).unwrap();
    Server::start(config.clone(), store, keys).unwrap()
}

pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}
