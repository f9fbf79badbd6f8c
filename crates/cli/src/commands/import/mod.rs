//! `strongroom import`: brings files from other containers, directories and streams, and looks afterwards whether all of it
//! arrived.
//!
//! 1. The source is only read.
//! 2. What is there already is kept, so the same command again goes on where one before it ended, however that ended. What the
//!    target holds of its own is never replaced unasked.
//! 3. Unless switched off, everything is compared at the end with the source, from the committed state of the room: not mounted, it
//!    is closed and opened again for that.

mod compressed;
mod end;
mod peers;
mod record;
mod stream;
mod tree;
mod unpack;

pub(crate) use peers::{CHILD_COMMAND, become_child};

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use import::{Container, Key};

use crate::access::OpenArgs;
use crate::args::Global;
use crate::confinement;
use crate::credentials;
use crate::error::{Error, Result};
use crate::mounting::ending;
use crate::output::{self, Failures};
use crate::place::{Location, RoomPath, is_room, must_be_room, place, room_path};
use crate::tree::{ContainerTree, HostTree};
use tree::from_tree;

/// Bring files into a room: from an IOCipher or libsqlfs container, a directory (of gocryptfs, CryFS, EncFS and securefs too), or a
/// tar stream
#[derive(Debug, clap::Args)]
#[command(
    allow_missing_positional = true,
    after_help = "What is in the source goes straight into the room, or into ROOM:/path, which is made where it is missing. The source is \
never changed. The same command again goes on where one before it was stopped or killed. At the end every file is read again on both \
sides and compared; what differs is named, and the exit code is then not 0.\n\nExamples:\n  strongroom import notes.db work.strongroom \
--source-passphrase-file notes.pass\n  strongroom import ~/cipher work.strongroom:/old --source-passphrase-file old.pass\n  strongroom \
import /mnt/disk work.strongroom:/disk\n  strongroom import --tar backup.tar.gz work.strongroom:/backup"
)]
pub(crate) struct Args {
    /// A container's file, or a directory
    #[arg(
        value_name = "SOURCE",
        required_unless_present = "tar",
        conflicts_with = "tar"
    )]
    source: Option<PathBuf>,
    /// Where to: ROOM, or ROOM:/path
    #[arg(value_name = "ROOM[:/path]", required = true)]
    target: Option<OsString>,
    /// Read a tar stream from FILE ("-": standard input) instead; one compressed with gzip, zstd, xz, bzip2 or lz4 too
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
    /// Replace files that exist and differ; without this they are left alone and reported
    #[arg(long)]
    overwrite: bool,
    /// Do not compare afterwards
    #[arg(long)]
    no_verify: bool,
    /// Take a directory as it is, though it looks like one of gocryptfs, CryFS, EncFS or securefs
    #[arg(long)]
    as_directory: bool,
    /// Read the source's passphrase from FILE; one trailing newline is stripped
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "source_key_file",
        help_heading = "What opens the source"
    )]
    source_passphrase_file: Option<PathBuf>,
    /// Read the key of a container from FILE: 32 bytes, or 64 hexadecimal digits
    #[arg(long, value_name = "FILE", help_heading = "What opens the source")]
    source_key_file: Option<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let Some(target) = &args.target else {
        return Err(Error::usage("where to? name a room, or ROOM:/path"));
    };
    let to = room_path(target)?;
    if let Some(tar) = &args.tar {
        // The programs that decompress are confined too.
        let programs = tar.as_os_str() == "-" || compressed::format_of_file(tar).is_some();
        confine(&args, &to, vec![tar.clone()], programs, global)?;
        return stream::run(&args, tar, &to, global);
    }
    let Some(source) = args.source.clone() else {
        return Err(Error::usage("what is to be imported?"));
    };
    if let Ok(Location::Room(_)) = place(source.as_os_str()) {
        return Err(Error::usage_at(
            &source,
            "a room already; copy from it with: strongroom cp -r",
        ));
    }
    let meta = std::fs::metadata(&source).map_err(|e| Error::host(&source, e))?;
    if !meta.is_dir() {
        let with = |suffix: &str| {
            let mut name = source.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let files = ["", "-wal", "-journal", "-shm"].map(with);
        confine(&args, &to, files.into(), false, global)?;
        return container(&args, &source, &to, global);
    }
    if is_room(&source) {
        return Err(Error::usage(format!(
            "{}: a room already; copy from it with: strongroom cp -r {}:/ …, or copy all of it with strongroom backup",
            source.display(),
            output::quoted(&source)
        )));
    }
    let peer = if args.as_directory {
        None
    } else {
        peers::find(&source)
    };
    match peer {
        None if args.source_passphrase_file.is_some() || args.source_key_file.is_some() => {
            Err(Error::usage_at(
                &source,
                "a directory that needs no key (it has no configuration of gocryptfs, CryFS, EncFS or securefs)",
            ))
        }
        None => {
            confine(&args, &to, vec![source.clone()], false, global)?;
            let tree = HostTree::with_top(&source);
            from_tree(&args, &tree, (&source, true), &to, global, &|| Ok(()))
        }
        Some(peer) => {
            let mounted =
                peers::Mounted::mount(peer, &source, args.source_passphrase_file.as_deref())?;
            let done = from_tree(
                &args,
                &HostTree::with_top(mounted.path()),
                (mounted.path(), true),
                &to,
                global,
                &|| mounted.is_alive(),
            );
            mounted.end()?;
            done
        }
    }
}

/// Keeps the source, and the room or its mount.
fn confine(
    args: &Args,
    to: &RoomPath,
    mut source: Vec<PathBuf>,
    programs: bool,
    global: &Global,
) -> Result<()> {
    must_be_room(&to.room)?;
    let mut profile = confinement::of_room_to_open(
        &to.room,
        args.open.state_dir.as_deref(),
        &args.open.credential,
    );
    if let Some(client) = ending::mounted(&to.room)? {
        profile.write.push(client.mountpoint);
    }
    profile.read.append(&mut source);
    let secrets = [&args.source_passphrase_file, &args.source_key_file];
    profile.read.extend(secrets.into_iter().flatten().cloned());
    // A container that a crash left with a journal is copied there.
    profile.write.push(std::env::temp_dir());
    profile.programs = programs;
    let credential = &args.open.credential;
    global
        .confinement
        .enter_for(&profile, "this command", credential)
}

fn container(args: &Args, path: &Path, to: &RoomPath, global: &Global) -> Result<()> {
    if stream::looks_like_tar(path) {
        return Err(Error::usage(format!(
            "{}: a tar stream; import it with: strongroom import --tar {} {}",
            path.display(),
            output::quoted(path),
            output::quoted(to.words().as_ref())
        )));
    }
    if let Some(format) = compressed::format_of_file(path) {
        return Err(Error::usage(format!(
            "{}: compressed with {}; import a compressed tar stream with: strongroom import --tar {} {}",
            path.display(),
            format.name,
            output::quoted(path),
            output::quoted(to.words().as_ref())
        )));
    }
    let key = match (&args.source_passphrase_file, &args.source_key_file) {
        (Some(file), _) => {
            let secret = credentials::passphrase_file(file)?;
            Key::Passphrase(secret.expose().to_vec().into())
        }
        (_, Some(file)) => {
            let secret = credentials::raw_key_file(file)?;
            let mut key = zeroize::Zeroizing::new([0; 32]);
            key.copy_from_slice(secret.expose());
            Key::Raw(key)
        }
        _ => Key::None,
    };
    let container = match Container::open(path, &key) {
        Err(import::Error::NeedsKey { .. }) if crate::ask::somebody_is_there() => {
            let secret = crate::ask::passphrase(&path.display().to_string())?;
            let key = Key::Passphrase(secret.expose().to_vec().into());
            Container::open(path, &key)
        }
        opened => opened,
    }
    .map_err(Error::import)?;
    drop(key);
    output::note(
        global,
        format!("{}: {}", path.display(), container.format()),
    );
    let mut left_out = Failures::default();
    for out in container.left_out() {
        use std::os::unix::ffi::OsStringExt;
        let key = OsString::from_vec(out.key.clone());
        let words = format!(
            "{}: {}: left out: {}",
            path.display(),
            output::shown(&key),
            out.why
        );
        left_out.note(&Error::failed(words), global);
    }
    let tree = ContainerTree::new(container);
    let done = from_tree(args, &tree, (Path::new("/"), false), to, global, &|| {
        tree.container().unchanged().map_err(Error::import)
    });
    done.and_then(|()| left_out.end())
}
