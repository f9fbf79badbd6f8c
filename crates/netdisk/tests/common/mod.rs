//! A disk in memory, served on loopback, and what a metadata server would do with it.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod raw;
pub(crate) mod relay;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::{Device, MemoryDevice};
use netdisk::server::{Config, Server};
use netdisk::*;

/// No test waits for this long unless it fails.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// Blocks of the disk.
pub(crate) const BLOCKS: u64 = 1023;

pub(crate) struct Disk {
    pub(crate) keys: KeyFile,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) config: Config,
    pub(crate) server: Server,
}

impl Disk {
    pub(crate) fn new(protection: Protection) -> Self {
        Self::on(Arc::new(MemoryDevice::new(4 << 20)), protection)
    }

    pub(crate) fn on(device: Arc<dyn Device>, protection: Protection) -> Self {
        Self::with(
            device,
            Config {
                protection,
                ..Config::default()
            },
        )
    }

    pub(crate) fn with(device: Arc<dyn Device>, config: Config) -> Self {
        let mut keys = KeyFile::generate().unwrap();
        keys.key = DiskKey::new(raw::KEY);
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
    pub(crate) fn restart(&mut self) {
        let address = self.server.local_addr();
        self.server.stop(LONG).unwrap();
        self.config.listen = address.to_string();
        self.server = serve(&self.device, &self.config, &self.keys);
    }

    pub(crate) fn address(&self) -> DiskAddress {
        DiskAddress {
            id: self.keys.id,
            address: self.server.local_addr().to_string(),
            protection: self.config.protection,
            certificate: Some(self.keys.certificate_hash),
        }
    }

    pub(crate) fn client(&self) -> DiskClient {
        DiskClient::new(self.address(), LONG)
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::new(self.address(), self.key(), LONG)
    }

    pub(crate) fn key(&self) -> DiskKey {
        self.keys.key.clone()
    }

    /// A capability for these blocks, of group 1.
    pub(crate) fn ticket(&self, id: u32, mode: Mode, extents: &[(u64, u64)]) -> Ticket {
        self.keys.key.ticket(self.capability(id, mode, extents))
    }

    pub(crate) fn capability(&self, id: u32, mode: Mode, extents: &[(u64, u64)]) -> Capability {
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
    pub(crate) fn contents(&self) -> Vec<u8> {
        let mut out = vec![0; self.device.len() as usize - 4096];
        self.device.read_at(&mut out, 4096).unwrap();
        out
    }
}

pub(crate) fn serve(device: &Arc<dyn Device>, config: &Config, keys: &KeyFile) -> Server {
    let surroundings = Surroundings {
        origin: b"this machine".to_vec(),
        failures: None,
    };
    let store = Store::open(device.clone(), surroundings).unwrap();
    Server::start(config.clone(), store, keys).unwrap()
}

pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}
