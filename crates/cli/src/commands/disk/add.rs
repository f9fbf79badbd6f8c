//! `strongroom disk add`: gives a room a disk.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use metadata_server::enrol::Disk;
use netdisk::{DiskAddress, KeyFile, Protection};

use super::init::key_file;
use crate::access::OpenArgs;
use crate::args::Global;
use crate::commands::metadata::admin::{self, Reply, Request};
use crate::error::{Error, Result};
use crate::output;

/// Add a network disk to a room, or change its address
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The room's directory
    room: PathBuf,
    /// The name to call the disk by
    name: String,
    /// Where it is, for the metadata server and for clients
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// The file for this purpose that `disk init` wrote
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// What protects the messages, as said to `disk serve` [default: private; secure where the address is loopback]
    #[arg(long, value_enum)]
    protection: Option<Level>,
    #[command(flatten)]
    open: OpenArgs,
}

/// What protects the messages to and from a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// Nothing: for measuring
    Open,
    /// Capabilities and replay detection
    Secure,
    /// These, and encryption
    Private,
}

impl Level {
    /// What protects the messages of a disk at this address where nobody says: between machines nobody else shall see which
    /// blocks are used.
    pub(crate) fn usual(address: &str) -> Self {
        let loopback = address.to_socket_addrs().is_ok_and(|addresses| {
            let mut addresses = addresses.peekable();
            addresses.peek().is_some() && addresses.all(|address| address.ip().is_loopback())
        });
        if loopback {
            Level::Secure
        } else {
            Level::Private
        }
    }

    pub(crate) fn protection(self) -> Protection {
        match self {
            Level::Open => Protection::Open,
            Level::Secure => Protection::Secure,
            Level::Private => Protection::Private,
        }
    }
}

/// A disk as `metadata serve --disk` names it.
#[derive(Debug, Clone)]
pub(crate) struct NamedDisk {
    name: String,
    address: String,
    key: PathBuf,
}

impl FromStr for NamedDisk {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.splitn(3, '=').collect::<Vec<_>>()[..] {
            [name, address, key] if !name.is_empty() && !address.is_empty() && !key.is_empty() => {
                Ok(Self {
                    name: name.into(),
                    address: address.into(),
                    key: key.into(),
                })
            }
            _ => Err("write NAME=HOST:PORT=KEYFILE".into()),
        }
    }
}

impl NamedDisk {
    pub(crate) fn read(&self, level: Option<Level>) -> Result<Disk> {
        read(&self.name, &self.address, &self.key, level)
    }
}

fn read(name: &str, address: &str, key: &Path, level: Option<Level>) -> Result<Disk> {
    let port = address
        .rsplit_once(':')
        .map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(1..))) {
        return Err(Error::usage(format!(
            "{address}: write the host and the port of the disk, as 10.0.0.5:7200"
        )));
    }
    let keys = KeyFile::read(key).map_err(|e| key_file(key, e))?;
    Ok(Disk {
        name: name.to_owned(),
        address: DiskAddress {
            id: keys.id,
            address: address.to_owned(),
            protection: level.unwrap_or_else(|| Level::usual(address)).protection(),
            certificate: Some(keys.certificate_hash),
        },
        key: keys.key,
    })
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let disk = read(&args.name, &args.address, &args.key, args.protection)?;
    match admin::ask(&args.room, &args.open, Request::AddDisk { disk })? {
        Reply::Done => {
            output::note(
                global,
                format!(
                    "{} has the disk {} at {}.",
                    args.room.display(),
                    args.name,
                    args.address
                ),
            );
            Ok(())
        }
        _ => Err(admin::unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_machines_messages_are_private_where_nobody_says() {
        for (address, level) in [
            ("127.0.0.1:7200", Level::Secure),
            ("127.9.0.1:7200", Level::Secure),
            ("[::1]:7200", Level::Secure),
            ("10.0.0.11:7200", Level::Private),
            ("0.0.0.0:7200", Level::Private),
            ("[::]:7200", Level::Private),
            ("[2001:db8::1]:7200", Level::Private),
            ("disk.strongroom.invalid:7200", Level::Private),
            ("no address", Level::Private),
        ] {
            assert_eq!(Level::usual(address), level, "{address}");
        }
    }
}
