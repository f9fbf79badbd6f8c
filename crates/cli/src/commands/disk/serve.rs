//! `strongroom disk serve`: a network disk, until it is asked to stop.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use confine::{Network, Profile};
use device::{Access, Device, FileDevice};
use netdisk::server::{Config, FilterSize, Server};
use netdisk::{KeyFile, Store, StoredDevice, Surroundings};
use serde_json::json;

use super::add::Level;
use super::in_bucket::{self, Ended};
use super::init::{key_file, store};
use super::observed::Watched;
use crate::args::Global;
use crate::bucket;
use crate::confinement;
use crate::error::{Error, Result};
use crate::mounting::options::duration;
use crate::output;
use crate::size::bytes;

/// How long the last flush may take when the server is asked to stop.
const FLUSH_MAX: Duration = Duration::from_secs(30);

/// Serve a network disk: blocks for clients that show a capability
#[derive(Debug, clap::Args)]
#[command(after_help = in_bucket::HELP)]
pub(crate) struct Args {
    /// Address and port to listen on; port 0 chooses one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7200")]
    listen: String,
    /// The store that `disk init` made: a file, a block device, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "FILE-OR-DEVICE")]
    store: PathBuf,
    /// The disk's secret key, which `disk init` wrote
    #[arg(long, value_name = "FILE", visible_alias = "identity")]
    key: PathBuf,
    /// What protects the messages: nothing (for measuring), capabilities and replay detection, or these and encryption
    /// [default: private; secure where --listen is loopback]
    #[arg(long, value_enum)]
    protection: Option<Level>,
    /// Listen without protection also where other machines reach it
    #[arg(long)]
    force: bool,
    /// Most connections of clients at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections: u32,
    /// Of these, most from one address
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections_per_address: u32,
    /// Of these, most of one client
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections_per_client: u32,
    /// Most requests of one connection that run at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Most memory for data on its way
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    memory: u64,
    /// Memory for replay detection: a power of two from 2KiB on; more of it makes epochs longer
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = filter_bytes)]
    replay_memory: u64,
    /// An epoch of replay detection ends after this time at the latest: 30s, 1m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    epoch: Duration,
    /// Cut off connections from which nothing authentic came for this long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    first_request_timeout: Duration,
    /// Cut off connections where one message takes longer than this
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    transfer_timeout: Duration,
    /// When asked to stop, wait this long for what runs
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    grace: Duration,
    #[command(flatten)]
    service: service::Common,
}

impl Args {
    fn level(&self) -> Level {
        self.protection
            .unwrap_or_else(|| Level::usual(&self.listen))
    }

    pub(super) fn service(&self) -> &service::Common {
        &self.service
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    bucket::hand_over_setting("--store", &args.store)?;
    global.confinement.enter(&profile(args), "the disk")?;
    // What is cut off after the grace has its time to be flushed.
    let stop = service::Stop::on_signals(args.grace + FLUSH_MAX)
        .map_err(|e| Error::failed(format!("signals cannot be received: {e}")))?;
    let ended = Ended::default();
    let started = start(args, &stop, &ended);
    let Started { server, in_bucket } =
        started.map_err(|e| ended.error(&args.store).unwrap_or(e))?;
    let (address, id) = (server.local_addr(), server.id());
    let server = Arc::new(RwLock::new(server));
    let service = service::Service::start(&args.service, Arc::new(Watched(server.clone())))
        .map_err(|e| Error::failed(e.to_string()))?;
    tracing::info!(disk = %id, %address, protection = ?args.level(), store = %bucket::room_name(&args.store).display(), "serving");
    if global.json {
        output::json_line(&json!({"disk": id.to_string(), "listening": address.to_string()}));
    } else {
        output::line(format!("disk {id} listens on {address}"));
    }
    service.ready(&format!("disk {id} listens on {address}"));
    stop.wait();
    if let Some(error) = ended.error(&args.store) {
        // As if it were killed: nothing that waits is answered or flushed any more.
        std::mem::forget(server);
        return Err(error);
    }
    tracing::info!("stopping: what runs is answered, then everything is made durable");
    service.stopping();
    // Poisoned by a bug of ours alone; what is written is to be made durable all the same.
    let mut server = server.write().unwrap_or_else(PoisonError::into_inner);
    let name = bucket::room_name(&args.store);
    server.stop(args.grace).map_err(|e| {
        let failed = || Error::failed(format!("{}: the last flush: {e}", name.display()));
        ended.error(&args.store).unwrap_or_else(failed)
    })?;
    if let Some(device) = in_bucket {
        device.close();
    }
    tracing::info!("stopped");
    Ok(())
}

/// What the server keeps: its store, its key, the count of its failures, and its ports.
fn profile(args: &Args) -> Profile {
    let ports = confinement::ports(&args.listen, &args.service);
    if bucket::is_proxy(&args.store) {
        let mut read = bucket::files_for_store();
        read.push(args.key.clone());
        return Profile {
            read,
            write: vec![args.store.clone()],
            network: Network::Both(ports),
            ..Profile::default()
        };
    }
    let failures = Surroundings::failures(&args.key);
    // A rule needs the file. Where it cannot be created, a failure is counted in memory alone.
    if args.key.is_file() {
        let _ = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&failures);
    }
    let mut read = vec![args.key.clone()];
    read.extend(Surroundings::read_for(&args.store));
    Profile {
        read,
        write: vec![args.store.clone(), failures],
        network: Network::Server(ports),
        ..Profile::default()
    }
}

struct Started {
    server: Server,
    /// Its device, where that is in a bucket.
    in_bucket: Option<Arc<StoredDevice>>,
}

/// Opens the store and begins to serve it.
fn start(args: &Args, stop: &service::Stop, ended: &Ended) -> Result<Started> {
    let keys = KeyFile::read(&args.key).map_err(|e| key_file(&args.key, e))?;
    if let Some(Some(end)) = keys.certificate.as_ref().map(|it| it.end())
        && end < output::now() + metadata_proto::identity::RENEW_BEFORE.as_secs()
    {
        tracing::warn!(
            "the disk's certificate {}; renew it: strongroom disk key rotate",
            output::end(Some(end))
        );
    }
    let (device, surroundings, in_bucket): (Arc<dyn Device>, _, _) =
        match bucket::is_proxy(&args.store) {
            true => {
                // A process that cannot listen takes nobody's place.
                let free = TcpListener::bind(&args.listen)
                    .map_err(|e| Error::failed(format!("cannot listen on {}: {e}", args.listen)))?;
                drop(free);
                let device = in_bucket::open(&args.store, stop, ended)?;
                (device.clone(), Surroundings::of_opening(), Some(device))
            }
            false => {
                let device = file(args)?;
                let surroundings = Surroundings::of(&device, &args.key);
                (Arc::new(device), surroundings, None)
            }
        };
    let name = bucket::room_name(&args.store);
    let opened = Store::open(device, surroundings).map_err(|e| store(&name, e))?;
    let config = Config {
        listen: args.listen.clone(),
        protection: args.level().protection(),
        open_to_all: args.force,
        connections_max: args.connections as usize,
        connections_per_address: args.connections_per_address as usize,
        connections_per_client: args.connections_per_client as usize,
        workers_max: args.workers as usize,
        payload_bytes_max: usize::try_from(args.memory).unwrap_or(usize::MAX),
        first_request_max: args.first_request_timeout,
        transfer_max: args.transfer_timeout,
        filter: FilterSize {
            // Two filters of so many bits.
            bits_log2: (args.replay_memory * 4).ilog2(),
            epoch_max: args.epoch,
        },
        ..Config::default()
    };
    let server = Server::start(config, opened, &keys).map_err(|e| Error::failed(e.to_string()))?;
    Ok(Started { server, in_bucket })
}

fn file(args: &Args) -> Result<FileDevice> {
    FileDevice::open(&args.store, Access::ReadWrite).map_err(|e| Error::device(&args.store, e))
}

fn filter_bytes(text: &str) -> std::result::Result<u64, String> {
    bytes(text).and_then(|size| {
        if size.is_power_of_two() && (2 << 10..=1 << 30).contains(&size) {
            Ok(size)
        } else {
            Err("write a power of two from 2KiB to 1GiB".into())
        }
    })
}
