//! `strongroom metadata serve`: the metadata server of a room, until it is asked to stop.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use confine::{Network, Profile};
use metadata_server::audit::{Full, Settings};
use metadata_server::server::{Config, MetadataServer, ServerError};
use rustix::fs::Mode;
use serde_json::json;
use service::{Common, Measures, Observed, Service, Stop};

use super::admin::{Socket, refused};
use crate::access::{Intent, OpenArgs};
use crate::args::Global;
use crate::bucket::{self, Pair};
use crate::commands::disk::add::{Level, NamedDisk};
use crate::confinement;
use crate::error::{Error, Result};
use crate::mounting::options::duration;
use crate::output;
use crate::place::must_be_room;
use crate::proxy::room_name;
use crate::size::bytes;
use crate::snapshots::schedule::{Schedule, WithRoom};

/// Serve a room on network disks to its users
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room: its directory, or s3://BUCKET/PREFIX
    #[arg(value_name = "ROOM")]
    place: Option<PathBuf>,
    /// The same, as the settings file has it
    #[arg(long, value_name = "ROOM", conflicts_with = "place")]
    room: Option<PathBuf>,
    /// Address and port to listen on; port 0 chooses one
    #[arg(long, value_name = "HOST:PORT", default_value_t = format!("127.0.0.1:{}", metadata_proto::DEFAULT_PORT))]
    listen: String,
    /// What protects the messages to and from the disks, instead of what `disk add` said of each
    #[arg(long, value_enum)]
    protection: Option<Level>,
    /// Add a disk first: NAME=HOST:PORT=KEYFILE, with the file for `disk add` that `disk init` wrote; may be repeated
    #[arg(long, value_name = "NAME=ADDRESS=KEYFILE")]
    disk: Vec<NamedDisk>,
    /// A client that sends nothing for this long loses its session, with locks and open files
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    lease: Duration,
    /// One of several servers of a room in a bucket: serve it when no other one does, and take it over when that one is gone
    #[arg(long)]
    standby: bool,
    /// With --standby: the others take over from this server when it has had no heartbeat for so long; it has three in that time
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration, requires = "standby")]
    standby_lease: Duration,
    /// Capabilities of the disks are good for this long
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    capability_lifetime: Duration,
    /// Try to flush a disk that cannot be reached for this long, before data that clients did not see durable is discarded
    // words.py: the old name
    #[arg(long = "flush-timeout", alias = "flush-patience", value_name = "TIME", default_value = "60s", value_parser = duration)]
    flush_timeout: Duration,
    /// Most connections of users at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections: u32,
    /// Of these, most from one address
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections_per_address: u32,
    /// Of these, most of one user
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections_per_user: u32,
    /// Write the audit log in this directory, which `audit init` created
    #[arg(long, value_name = "DIR")]
    audit: Option<PathBuf>,
    /// Begin another file of the audit log when one has this size
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    audit_file_size: u64,
    /// While the audit log cannot be written: refuse what would be logged, or go on with a warning and count what is missing
    #[arg(long, value_enum, default_value_t = OnFull::Refuse)]
    audit_full: OnFull,
    /// When asked to stop, end after this time in any case
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = duration)]
    grace: Duration,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    common: Common,
}

/// Leases of one of several servers.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum OnFull {
    Refuse,
    Warn,
}

impl Args {
    /// The word before the option: that may be from the settings, which clap takes for defaults.
    fn room(&self) -> Result<&Path> {
        let named = self.place.as_deref().or(self.room.as_deref());
        named.ok_or_else(|| {
            Error::usage("which room? name its directory, or s3://BUCKET/PREFIX; or set `room` in the settings")
        })
    }

    /// How it is one of several servers, if it is.
    fn pair(&self, dir: &Path) -> Result<Option<Pair>> {
        if !self.standby {
            return Ok(None);
        }
        if !bucket::is_proxy(dir) {
            return Err(Error::usage(
                "--standby: only a room in a bucket can have several servers; create it with: strongroom create s3://BUCKET/PREFIX",
            ));
        }
        let lease = self.standby_lease;
        if !LEASES.contains(&lease) {
            return Err(Error::usage("--standby-lease: between 1 s and 60 s"));
        }
        Ok(Some(Pair { lease }))
    }

    fn audit(&self) -> Option<Settings> {
        Some(Settings {
            file_size: self.audit_file_size,
            full: match self.audit_full {
                OnFull::Refuse => Full::Refuse,
                OnFull::Warn => Full::Warn,
            },
            ..Settings::new(self.audit.clone()?)
        })
    }

    pub(super) fn service(&self) -> &Common {
        &self.common
    }
}

struct MetricsSource(Arc<MetadataServer>);

impl Observed for MetricsSource {
    fn ready(&self) -> std::result::Result<(), String> {
        if self.0.is_serving() {
            Ok(())
        } else {
            Err("another server has the room, or it is being opened".into())
        }
    }

    fn measure(&self, m: &mut Measures) {
        let metrics = self.0.metrics();
        let gauge = |m: &mut Measures, name: &str, help: &str, value: u64| {
            m.gauge(&format!("strongroom_metadata_{name}"), help, value as f64);
        };
        gauge(
            m,
            "connections",
            "Connections of clients.",
            metrics.connections,
        );
        gauge(m, "sessions", "Sessions of clients.", metrics.sessions);
        gauge(m, "open_files", "Files open in sessions.", metrics.opens);
        gauge(
            m,
            "grants",
            "Segment ranges granted to clients.",
            metrics.grants,
        );
        gauge(m, "locks", "Ranges of files locked.", metrics.locks);
        let counter = |m: &mut Measures, name: &str, help: &str, value: u64| {
            m.counter(&format!("strongroom_metadata_{name}_total"), help, value);
        };
        counter(
            m,
            "connections_accepted",
            "Connections let in.",
            metrics.connections_total,
        );
        counter(
            m,
            "connections_refused",
            "Connections not let in.",
            metrics.connections_refused,
        );
        counter(
            m,
            "reopened",
            "Times the room was reopened after a failure of its storage.",
            metrics.reopened,
        );
        if let Some((entries, failing)) = self.0.audit() {
            counter(m, "audit_entries", "Entries of the audit log.", entries);
            gauge(
                m,
                "audit_failing",
                "1 while the audit log cannot be written.",
                u64::from(failing),
            );
        }
        let capabilities = metrics.capabilities;
        counter(
            m,
            "capabilities_given",
            "Capabilities given to clients.",
            capabilities.issued,
        );
        counter(
            m,
            "capabilities_revoked",
            "Capabilities revoked.",
            capabilities.revoked,
        );
        counter(
            m,
            "revocations",
            "Revocations, each of one or many capabilities.",
            capabilities.revocations,
        );
        counter(
            m,
            "groups",
            "Groups of capabilities begun.",
            capabilities.groups,
        );
        m.seconds(
            "strongroom_metadata_revocation_seconds_total",
            "Time of all revocations together.",
            capabilities.revocation_ns as f64 / 1e9,
        );
        m.gauge(
            "strongroom_metadata_revocation_seconds_max",
            "The longest revocation.",
            capabilities.revocation_ns_max as f64 / 1e9,
        );
        let calls = || metrics.calls.iter();
        m.counters(
            "strongroom_metadata_calls_total",
            "Calls answered.",
            "call",
            calls().map(|(name, count)| (*name, count.done)),
        );
        m.counters(
            "strongroom_metadata_calls_refused_total",
            "Calls refused.",
            "call",
            calls().map(|(name, count)| (*name, count.refused)),
        );
        m.gauges(
            "strongroom_metadata_call_seconds_mean",
            "Mean time of calls since the start.",
            "call",
            calls().map(|(name, count)| (*name, count.ns as f64 / 1e9 / count.done.max(1) as f64)),
        );
        let disks = || metrics.disks.iter();
        m.gauges(
            "strongroom_metadata_disk_reachable",
            "Whether a disk answers.",
            "disk",
            disks().map(|disk| (disk.name.as_str(), f64::from(u8::from(disk.reachable)))),
        );
        m.gauges(
            "strongroom_metadata_disk_capabilities",
            "Capabilities of a disk that clients have.",
            "disk",
            disks().map(|disk| (disk.name.as_str(), disk.capabilities as f64)),
        );
        m.gauges(
            "strongroom_metadata_disk_revocations_pending",
            "Revocations that wait for a disk.",
            "disk",
            disks().map(|disk| (disk.name.as_str(), disk.pending as f64)),
        );
    }
}

fn address(text: &str) -> Result<SocketAddr> {
    let wrong = |why: String| {
        Error::usage(format!(
            "--listen {text}: {why}; write an address with a port, as 127.0.0.1:7420"
        ))
    };
    text.to_socket_addrs()
        .map_err(|e| wrong(e.to_string()))?
        .next()
        .ok_or_else(|| wrong("no such address".into()))
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    // Everything this process makes is private: socket, and what the room writes.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let room = args.room()?;
    bucket::hand_over_setting("--room", room)?;
    must_be_room(room)?;
    let dir = room.canonicalize().map_err(|e| Error::host(room, e))?;
    let mut config = Config::new(dir.clone());
    let pair = args.pair(&dir)?;
    config.files = bucket::files_of_pair(&dir, pair);
    config.waits = pair.is_some();
    config.listen = address(&args.listen)?;
    config.open = args.open.options(Intent::Change);
    config.lease = args.lease;
    config.timing.capability_lifetime = args.capability_lifetime;
    config.flush_timeout = args.flush_timeout;
    config.connections_max = args.connections as usize;
    config.connections_per_address = args.connections_per_address as usize;
    config.connections_per_user = args.connections_per_user as usize;
    config.audit = args.audit();
    config.protection = args.protection.map(Level::protection);
    for disk in &args.disk {
        config.disks.push(disk.read(args.protection)?);
    }
    let given = args.open.credential.read(&room.display().to_string())?;
    global
        .confinement
        .enter_with(&profile(args, &dir), "the metadata server", &given)?;
    let failed = |e: std::io::Error| Error::failed(e.to_string());
    let credential = given.credential()?;
    if pair.is_some() || given.uses_plugin() {
        // A wrong credential is found now, and its key is not derived once more while clients wait: nobody may be there to touch a
        // plugin's device. Before signals are handled: they end the wait for it.
        let key = bucket::known_key(&dir, &credential).map_err(|e| Error::room(room, e))?;
        config.open.known_key = Some(key);
    }
    let stop = Stop::on_signals(args.grace).map_err(failed)?;
    let server = MetadataServer::start(config, credential).map_err(|e| refused(room, e))?;
    let server = Arc::new(server);
    let service =
        Service::start(&args.common, Arc::new(MetricsSource(server.clone()))).map_err(failed)?;
    let socket = Socket::start(&dir, &server).map_err(|e| Error::host(&dir.join("metadata"), e))?;
    let schedule = schedule(&dir, &server).map_err(failed)?;
    let address = server.local_addr();
    tracing::info!(%address, room = %dir.display(), "serving");
    let serves = match pair {
        Some(_) => "is on standby",
        None => "is served",
    };
    if global.json {
        output::json_line(
            &json!({"listening": address.to_string(), "room": dir.to_string_lossy(), "standby": pair.is_some()}),
        );
    } else {
        output::line(format!(
            "{} {serves} at {address}",
            room_name(room).display()
        ));
    }
    service.ready(&format!("serving at {address}"));
    stop.wait();
    service.stopping();
    tracing::info!("stopping: sessions end, then everything is made durable");
    socket.stop();
    drop(schedule);
    drop(service);
    let stopped = end(server).map_err(|e| refused(room, e));
    if stopped.is_ok() {
        tracing::info!("stopped");
    }
    stopped
}

/// Automatic snapshots, by the policy of the room. While another server has it, that one does so.
fn schedule(dir: &Path, server: &Arc<MetadataServer>) -> std::io::Result<Schedule> {
    let (named, server) = (dir.to_owned(), Arc::downgrade(server));
    let with_room: WithRoom = Box::new(move |work| {
        let done = server.upgrade()?.change_snapshots(None, work);
        Some(match done {
            Ok(done) => done,
            Err(ServerError::NotNow) => Ok(()),
            Err(e) => Err(refused(&named, e)),
        })
    });
    Schedule::start(dir.to_owned(), with_room)
}

/// What the server keeps: the room, its audit log, its ports, and connections to the disks.
fn profile(args: &Args, dir: &Path) -> Profile {
    let mut profile = confinement::of_room(dir, args.open.state_dir.as_deref());
    profile.write.extend(args.audit.clone());
    profile.network = Network::Both(confinement::ports(&args.listen, &args.common));
    profile
}

/// Stops the server once no request comes any more; requests are bounded in time.
fn end(mut server: Arc<MetadataServer>) -> std::result::Result<(), ServerError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match Arc::try_unwrap(server) {
            Ok(server) => return server.stop(),
            Err(shared) => server = shared,
        }
        if Instant::now() > deadline {
            return Err(ServerError::NotNow);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
