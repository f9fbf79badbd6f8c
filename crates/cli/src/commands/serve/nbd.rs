//! `strongroom serve nbd`: volumes, images and files of rooms as network block devices, until asked to stop.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use clap::ValueEnum;
use confine::{Network, Profile};
use nbd::{Config, Export, Listen, Server, Tls, TlsFiles, TlsPolicy};
use serde_json::json;

use super::observed::Watched;
use super::target::{Rooms, Target, TargetArgs};
use crate::args::Global;
use crate::confinement;
use crate::error::{Error, Result};
use crate::mounting::options::duration;
use crate::output;
use crate::runtime;
use crate::size::bytes;

/// How long the last flush may take when the server is asked to stop.
const FLUSH_MAX: Duration = Duration::from_secs(60);

/// Serve volumes, images and files of rooms as network block devices (NBD)
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A client names an export in its address: nbd://HOST/NAME, or nbd+unix:///NAME?socket=PATH. Where it names none it gets \
                  the first."
)]
pub(crate) struct Args {
    /// What to serve: an image or block device, which is opened where it is an encrypted volume, or ROOM:/path
    #[arg(value_name = "TARGET")]
    targets: Vec<OsString>,
    /// The same, as an option: for the file of settings
    #[arg(long, value_name = "TARGET")]
    target: Vec<OsString>,
    /// Name of each export, in the order of the targets; without: none for one target, the names of the files for several
    #[arg(long, value_name = "NAME")]
    export_name: Vec<String>,
    /// Description of the exports for clients
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// Listen on this socket file, which only this user may reach [default: a new one in the user's runtime directory]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Listen on this address and port instead, where every user of this machine may connect; port 0 chooses one
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Whether with TLS; without this option: required where certificates or keys are given
    #[arg(long, value_enum)]
    tls: Option<Policy>,
    /// A directory with server-cert.pem and server-key.pem (and ca-cert.pem, to verify clients)
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Refuse clients without a certificate that ca-cert.pem vouches for
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
    /// A file of pre-shared keys, lines of NAME:HEX as psktool writes them
    #[arg(long, value_name = "FILE")]
    tls_psk: Option<PathBuf>,
    /// Listen without TLS also where other machines reach it
    #[arg(long)]
    force: bool,
    /// Most connections at once
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    connections: u32,
    /// Most requests of one connection that run at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// Most memory for data on its way, at least 32MiB
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = bytes)]
    memory: u64,
    /// Cut off connections that have not chosen an export after this time
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    handshake_timeout: Duration,
    /// Cut off connections where one message takes longer than this
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    transfer_timeout: Duration,
    /// Cut off connections that ask for nothing for this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle_timeout: Option<Duration>,
    /// When asked to stop, wait this long for what runs
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    grace: Duration,
    #[command(flatten)]
    what: TargetArgs,
    #[command(flatten)]
    service: service::Common,
}

/// Whether connections go into TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Never
    Off,
    /// Where the client asks for it
    Allow,
    /// Always: before it nothing is answered
    Require,
}

impl Args {
    pub(super) fn service(&self) -> &service::Common {
        &self.service
    }
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    // What can be refused is refused before a secret is asked for.
    let listen = listen(args)?;
    let config = config(args, listen.clone())?;
    let arguments: Vec<&OsString> = args.targets.iter().chain(&args.target).collect();
    if arguments.is_empty() {
        return Err(Error::usage(
            "nothing to serve was named: give an image, a block device or ROOM:/path",
        ));
    }
    let names = names(&arguments, &args.export_name)?;
    global.confinement.enter_for(
        &profile(args, &arguments, &listen)?,
        "the server",
        &args.what.open.credential,
    )?;
    let mut rooms = Rooms::default();
    let mut targets = Vec::with_capacity(arguments.len());
    for argument in arguments {
        targets.push(Target::open(argument, &args.what, &mut rooms)?);
    }
    let exports = targets.iter().zip(&names).map(|(target, name)| Export {
        name: name.clone(),
        description: args.description.clone(),
        device: target.device.clone(),
        read_only: args.what.read_only,
    });
    // What is cut off after the grace has its time to be flushed.
    let stop = service::Stop::on_signals(args.grace + FLUSH_MAX)
        .map_err(|e| Error::failed(format!("signals cannot be received: {e}")))?;
    let failed = |e: nbd::ServeError| Error::failed(e.to_string());
    let server = Server::start(config, exports.collect()).map_err(failed)?;
    let at = match (&listen, server.local_addr()) {
        (Listen::Tcp(_), Some(address)) => address.to_string(),
        (Listen::Tcp(text), None) => text.clone(),
        // A user of the address may be in another directory.
        (Listen::Unix(path), _) => std::path::absolute(path)
            .unwrap_or_else(|_| path.clone())
            .display()
            .to_string(),
    };
    let server = Arc::new(RwLock::new(server));
    let service = service::Service::start(&args.service, Arc::new(Watched(server.clone())))
        .map_err(|e| Error::failed(e.to_string()))?;
    for (target, name) in targets.iter().zip(&names) {
        let (size, uri) = (target.device.len(), uri(args, &listen, &at, name));
        tracing::info!(export = name, what = target.what, size, uri, "serving");
        if global.json {
            output::json_line(&json!({
                "export": name, "listening": at, "uri": uri, "size_bytes": size,
                "read_only": args.what.read_only || target.device.is_read_only(),
            }));
        } else {
            output::line(format!("{}: {uri}", target.what));
        }
    }
    service.ready(&format!("listening on {at}"));
    stop.wait();
    tracing::info!("stopping: what runs is answered, then everything is made durable");
    service.stopping();
    // Poisoned by a bug of ours alone; what is written is to be made durable all the same.
    let stopped = server
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .stop(args.grace);
    drop(service);
    drop(server);
    drop(targets);
    let closed = rooms.close();
    stopped.map_err(|e| Error::failed(format!("the last flush: {e}")))?;
    closed?;
    tracing::info!("stopped");
    Ok(())
}

/// What the server keeps: what it serves, what opens that, and where it listens.
fn profile(args: &Args, targets: &[&OsString], listen: &Listen) -> Result<Profile> {
    let mut profile = Profile::default();
    for target in targets {
        let of = Target::profile(target, &args.what)?;
        profile.read.extend(of.read);
        profile.write.extend(of.write);
    }
    let address = match listen {
        Listen::Tcp(address) => address,
        Listen::Unix(path) => {
            profile.sockets.push(confinement::directory(path));
            ""
        }
    };
    let ports = confinement::ports(address, &args.service);
    if !ports.is_empty() {
        profile.network = Network::Server(ports);
    }
    Ok(profile)
}

/// A socket of this user's alone, unless something else was asked for: NBD has no authentication of its own.
fn listen(args: &Args) -> Result<Listen> {
    if let Some(address) = &args.listen {
        return Ok(Listen::Tcp(address.clone()));
    }
    if let Some(path) = &args.socket {
        return Ok(Listen::Unix(path.clone()));
    }
    let dir = runtime::directory().ok_or_else(|| {
        Error::usage(
            "this user has no runtime directory for a socket: set XDG_RUNTIME_DIR, or say where to listen with --socket PATH or \
             --listen HOST:PORT",
        )
    })?;
    Ok(Listen::Unix(
        dir.join(format!("nbd-{}", std::process::id())),
    ))
}

fn policy(args: &Args) -> TlsPolicy {
    let given = args.tls_certificates.is_some() || args.tls_psk.is_some();
    match args.tls {
        Some(Policy::Allow) => TlsPolicy::Allow,
        Some(Policy::Require) => TlsPolicy::Require,
        Some(Policy::Off) => TlsPolicy::Off,
        None if given => TlsPolicy::Require,
        None => TlsPolicy::Off,
    }
}

fn config(args: &Args, listen: Listen) -> Result<Config> {
    let files = TlsFiles {
        certificates: args.tls_certificates.clone(),
        verify_clients: args.tls_verify_peer,
        pre_shared_keys: args.tls_psk.clone(),
    };
    let policy = policy(args);
    let tls =
        match policy {
            TlsPolicy::Off => None,
            TlsPolicy::Allow | TlsPolicy::Require => Some(Tls::read(&files).map_err(|e| {
                Error::usage(format!("{e}: --tls-certificates DIR, --tls-psk FILE"))
            })?),
        };
    Ok(Config {
        listen,
        policy,
        tls,
        open_to_all: args.force,
        connections_max: args.connections as usize,
        workers_max: args.workers as usize,
        payload_bytes_max: usize::try_from(args.memory).unwrap_or(usize::MAX),
        handshake_max: args.handshake_timeout,
        transfer_max: args.transfer_timeout,
        idle_max: args.idle_timeout,
    })
}

/// The exports' names.
fn names(targets: &[&OsString], given: &[String]) -> Result<Vec<String>> {
    if !given.is_empty() {
        if given.len() != targets.len() {
            return Err(Error::usage(format!(
                "{} targets and {} names: give --export-name once for each target, or not at all",
                targets.len(),
                given.len()
            )));
        }
        return Ok(given.to_vec());
    }
    if let [_] = targets {
        return Ok(vec![String::new()]);
    }
    let name = |target: &&OsString| {
        let name = Path::new(target).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    Ok(targets.iter().map(name).collect())
}

/// Where a client finds an export: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md>.
fn uri(args: &Args, listen: &Listen, at: &str, name: &str) -> String {
    let quoted = |text: &str| -> String {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
        let each = text.bytes().map(|b| match b {
            b if plain(b) => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        });
        each.collect()
    };
    let s = match policy(args) {
        TlsPolicy::Off => "",
        TlsPolicy::Allow | TlsPolicy::Require => "s",
    };
    match listen {
        Listen::Unix(_) => format!("nbd{s}+unix:///{}?socket={}", quoted(name), quoted(at)),
        Listen::Tcp(_) => format!("nbd{s}://{at}/{}", quoted(name)),
    }
}
