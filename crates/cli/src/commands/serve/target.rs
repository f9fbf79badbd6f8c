//! What is served: an image, the contents of an encrypted volume, or a file of a room, as a device.
//!
//! 1. What looks like an encrypted volume is never served as its ciphertext unless that was asked for: a client that formats it
//!    would destroy the volume.
//! 2. A secret is only asked for where it opens something.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use confine::Profile;
use device::{Access, Device};
use room::Room;
use volume::{Certainty, Credential, Format as Volume};
use zeroize::Zeroizing;

use super::room_device::RoomDevice;
use crate::access::{Intent, OpenArgs};
use crate::commands::volume::image::{self, ImageArgs};
use crate::confinement;
use crate::control::SOCKET;
use crate::control::client::Client;
use crate::credentials::GivenKind;
use crate::error::{Error, Result};
use crate::place::{Location, RoomPath, live, must_be_room, place};
use crate::socket;
use crate::tree::Fault;

/// What an image holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// An encrypted volume where it looks like one, else the bytes as they are
    #[default]
    Auto,
    /// The bytes as they are
    Raw,
}

/// How a target is opened.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct TargetArgs {
    /// What an image holds. A file of a room is always taken as it is
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) format: Format,
    /// The volume's header, where it is kept apart from its contents
    #[arg(long, value_name = "FILE")]
    pub(crate) header: Option<PathBuf>,
    /// The key that a volume's contents are encrypted with, without any key slot: its bytes, or hexadecimal digits
    #[arg(
        long,
        value_name = "FILE",
        group = "credential",
        conflicts_with = "key_file"
    )]
    pub(crate) master_key_file: Option<PathBuf>,
    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Pass discards on to the storage below an encrypted volume; the image then shows which sectors are unused
    #[arg(long)]
    pub(crate) allow_discards: bool,
    /// Derive a volume's key at whatever cost its header asks for, also where that takes the machine's memory
    #[arg(long)]
    pub(crate) any_kdf_cost: bool,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

/// What was opened.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) device: Arc<dyn Device>,
    /// For the log and for people: what it is.
    pub(crate) what: String,
    /// Bytes of a sector: of an encrypted volume its own, of everything else those that a partition table counts in.
    pub(crate) sector_size: usize,
}

/// Bytes of the sectors of a disk.
const SECTOR: usize = 512;

/// The rooms that this process opened for targets, each once: to a second opening it would be in use.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Vec<(PathBuf, Arc<Room>)>);

impl Rooms {
    /// The room of a directory, opened by the first target that is in it.
    fn open(&mut self, dir: &Path, args: &TargetArgs) -> Result<Arc<Room>> {
        let is_it = |other: &Path| match (other.canonicalize(), dir.canonicalize()) {
            (Ok(other), Ok(dir)) => other == dir,
            _ => other == dir,
        };
        if let Some((_, room)) = self.0.iter().find(|(other, _)| is_it(other)) {
            return Ok(room.clone());
        }
        let given = args.open.credential.read(&dir.display().to_string())?;
        let intent = match args.read_only {
            true => Intent::Read,
            false => Intent::Change,
        };
        let options = args.open.options(intent);
        let room = crate::bucket::open_room(dir, &given.credential()?, options)
            .map_err(|e| Error::room(dir, e))?;
        socket::remove_leftovers(dir, SOCKET);
        let room = Arc::new(room);
        self.0.push((dir.to_owned(), room.clone()));
        Ok(room)
    }

    /// Closes them, once no target is there and nobody serves one any more.
    pub(crate) fn close(self) -> Result<()> {
        let closed = self
            .0
            .into_iter()
            .map(|(dir, room)| match Arc::into_inner(room) {
                Some(room) => room.close().map_err(|e| Error::room(&dir, e)),
                // A connection that could not be ended in time still has it; what was answered is durable.
                None => Ok(()),
            });
        closed.fold(Ok(()), Result::and)
    }
}

impl Target {
    /// Opens what `argument` names, and the room around it where that is not among `rooms` yet.
    pub(crate) fn open(
        argument: &OsString,
        args: &TargetArgs,
        rooms: &mut Rooms,
    ) -> Result<Target> {
        match place(argument)? {
            Location::Room(path) => of_room(&live(path)?, args, rooms),
            Location::Host(path) => of_image(&path, args),
        }
    }

    /// What a process keeps that opens what `argument` names.
    pub(crate) fn profile(argument: &OsString, args: &TargetArgs) -> Result<Profile> {
        Ok(match place(argument)? {
            Location::Host(path) => {
                let credential = confinement::credential_files(&args.open.credential);
                let key = args.master_key_file.iter().cloned();
                let header = args.header.iter().cloned();
                let mut profile = Profile {
                    read: credential.into_iter().chain(key).chain(header).collect(),
                    ..Profile::default()
                };
                match args.read_only {
                    true => profile.read.push(path),
                    false => profile.write.push(path),
                }
                profile
            }
            Location::Room(path) => {
                let mut profile = confinement::of_room_to_open(
                    &path.room,
                    args.open.state_dir.as_deref(),
                    &args.open.credential,
                );
                if let Some(client) = Client::find(&path.room)? {
                    let inside = path.path.strip_prefix("/").unwrap_or(&path.path);
                    profile.write.push(client.mountpoint.join(inside));
                }
                profile
            }
        })
    }
}

fn of_room(path: &RoomPath, args: &TargetArgs, rooms: &mut Rooms) -> Result<Target> {
    if args.header.is_some() || args.master_key_file.is_some() {
        return Err(Error::usage(format!(
            "{}: a file of a room is served as it is; --header and --master-key-file are for encrypted volumes",
            path.words()
        )));
    }
    must_be_room(&path.room)?;
    if let Some(client) = Client::find(&path.room)? {
        let inside = path.path.strip_prefix("/").unwrap_or(&path.path);
        let mount = client
            .mount()
            .ok_or_else(|| crate::mounting::ending::no_mount(&client))?;
        let device = image::open_device(
            &mount.mountpoint.join(inside),
            image::access(args.read_only),
        )?;
        return Ok(Target {
            device,
            what: format!("{}, through its mount", path.words()),
            sector_size: SECTOR,
        });
    }
    let room = rooms.open(&path.room, args)?;
    let at = |fault| path.failed(Fault::Room(fault));
    let no = room.resolve(&path.path, true).map_err(at)?;
    let device = RoomDevice::new(room, no, args.read_only).map_err(at)?;
    Ok(Target {
        device: Arc::new(device),
        what: path.words(),
        sector_size: SECTOR,
    })
}

fn of_image(path: &Path, args: &TargetArgs) -> Result<Target> {
    let source = ImageArgs {
        image: path.to_owned(),
        header: args.header.clone(),
    };
    let device = source.device(image::access(args.read_only))?;
    let name = path.display();
    let plain = |device| Target {
        device,
        what: format!("{name}, as it is"),
        sector_size: SECTOR,
    };
    if args.format == Format::Raw {
        return Ok(plain(device));
    }
    let header = source.header_device(Access::ReadOnly)?;
    // What is kept apart, or comes without a key slot, is a volume because the user says so.
    let said = header.is_some() || args.master_key_file.is_some();
    let format = match said {
        true => None,
        false => volume::recognise(&*device).map_err(|e| image::said(path, e))?,
    };
    if !said && format.is_none() {
        return Ok(plain(device));
    }
    let credential = credential(path, format, args)?;
    let options = volume::OpenOptions {
        read_only: args.read_only,
        allow_discards: args.allow_discards,
        any_cost: args.any_kdf_cost,
    };
    let opened = source.unlock(device, header, &credential, options)?;
    if opened.certainty == Certainty::Unknown {
        tracing::warn!(image = %name, "the key cannot be verified: the contents may be nonsense");
    }
    Ok(Target {
        device: opened.device,
        what: format!("the contents of {name}, {}", opened.format),
        sector_size: opened.sector_size,
    })
}

fn credential(path: &Path, format: Option<Volume>, args: &TargetArgs) -> Result<Credential> {
    if let Some(file) = &args.master_key_file {
        return Ok(Credential::MasterKey(image::master_key_file(file)?));
    }
    let kind = format.map_or("volume".to_owned(), |format| format!("{format} volume"));
    let asked = format!("the {kind} {}", path.display());
    let given = args.open.credential.read(&asked)?;
    match given.kind {
        GivenKind::Passphrase | GivenKind::KeyFile => Ok(Credential::Passphrase(Zeroizing::new(
            given.bytes().to_vec(),
        ))),
        GivenKind::RawKey | GivenKind::Identity | GivenKind::PassphraseAndKeyFile => {
            Err(Error::usage(format!(
                "{asked}: --raw-key-file, --identity and a passphrase with a key file open rooms; a volume is opened with --passphrase-file, --key-file or --master-key-file",
            )))
        }
    }
}
