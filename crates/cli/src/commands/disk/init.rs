//! `strongroom disk init`: turns a file, a block device or a place in a bucket into the store of a new network disk.

use std::path::{Path, PathBuf};

use device::{Access, Device, FileDevice};
use netdisk::{KeyFile, KeyFileError, Store, StoreError};
use serde_json::json;

use super::in_bucket;
use crate::args::Global;
use crate::bucket;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{self, size};
use crate::size::bytes;

/// Turn a file, a block device or a place in a bucket into the store of a new network disk
#[derive(Debug, clap::Args)]
#[command(after_help = in_bucket::HELP)]
pub(crate) struct Args {
    /// The store: a file, which is made, a block device, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "FILE-OR-DEVICE")]
    store: PathBuf,
    /// Size of a store that does not exist yet; it takes no space before it is written
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
    /// Where the disk's secret key goes: a new file, for `disk serve` and nobody else
    #[arg(long, value_name = "FILE")]
    key_out: PathBuf,
    /// Where the metadata server's part of it goes: a new file, for `disk add` [default: FILE of --key-out, with .add]
    #[arg(long, value_name = "FILE")]
    add_out: Option<PathBuf>,
    /// Use the store even if it holds data, which is lost
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    let part = args.add_out.clone().unwrap_or_else(|| {
        let mut name = args.key_out.clone().into_os_string();
        name.push(".add");
        name.into()
    });
    for path in [&args.key_out, &part] {
        if path.symlink_metadata().is_ok() {
            return Err(Error::usage_at(
                path,
                "exists; a disk's key is never written over: choose another name",
            ));
        }
    }
    let in_bucket = bucket::is_proxy(&args.store);
    let name = bucket::room_name(&args.store);
    let made = match in_bucket {
        true => {
            let device = in_bucket::create(&args.store, size_in_bucket(args, &name)?)?;
            let made = make(&device, args, &part, &name);
            device.close();
            made.inspect_err(|_| bucket::discard(&args.store))
        }
        false => {
            let device = open(args)?;
            make(&device, args, &part, &name).inspect_err(|_| {
                // It was created here, and would be in the way of the next try.
                if args.size.is_some() {
                    let _ = std::fs::remove_file(&args.store);
                }
            })
        }
    };
    let Made { keys, bytes } = made?;
    if global.json {
        output::json_line(&json!({
            "disk": keys.id.to_string(),
            "store": name.to_string_lossy(),
            "bytes": bytes,
            "key": args.key_out.to_string_lossy(),
            "add": part.to_string_lossy(),
        }));
    } else {
        output::line(format!("disk    {}", keys.id));
        output::line(format!("store   {} ({})", name.display(), size(bytes)));
        output::line(format!(
            "key     {} (secret; for `strongroom disk serve --key`)",
            args.key_out.display()
        ));
        output::line(format!(
            "add     {} (secret; for `strongroom disk add` at the metadata server)",
            part.display()
        ));
    }
    Ok(())
}

struct Made {
    keys: KeyFile,
    bytes: u64,
}

/// Makes a device the store of a new disk, and its keys.
fn make(device: &dyn Device, args: &Args, part: &Path, name: &Path) -> Result<Made> {
    let keys = KeyFile::generate().map_err(|e| key_file(&args.key_out, e))?;
    // The keys first: a store whose key is lost is of no use, a key without a store does no harm.
    keys.write(&args.key_out)
        .map_err(|e| key_file(&args.key_out, e))?;
    let made = keys
        .write_part(part)
        .map_err(|e| key_file(part, e))
        .and_then(|()| Store::init(device, keys.id, args.force).map_err(|e| store(name, e)));
    if let Err(error) = made {
        for path in [args.key_out.as_path(), part] {
            let _ = std::fs::remove_file(path);
        }
        return Err(error);
    }
    let bytes = device.len();
    Ok(Made { keys, bytes })
}

/// The size of a disk in a bucket, where nothing may be yet.
fn size_in_bucket(args: &Args, name: &Path) -> Result<u64> {
    if args.force {
        let words = "--force is for files and devices; choose a prefix where nothing is";
        return Err(Error::usage(format!("{}: {words}", name.display())));
    }
    let size = args.size.ok_or_else(|| {
        let words = "say with --size how large the disk shall be";
        Error::usage(format!("{}: {words}", name.display()))
    })?;
    whole_blocks(size, name)
}

/// The size that a disk of `size` bytes gets.
fn whole_blocks(size: u64, name: &Path) -> Result<u64> {
    match size / 4096 * 4096 {
        rounded if rounded < 1 << 20 => Err(store(name, StoreError::TooSmall(size))),
        rounded => Ok(rounded),
    }
}

fn open(args: &Args) -> Result<FileDevice> {
    let path = &args.store;
    match (path.exists(), args.size) {
        (true, Some(_)) => Err(Error::usage_at(
            path,
            "exists and has its size; leave --size away, or name a file that does not exist",
        )),
        (true, None) => {
            FileDevice::open(path, Access::ReadWrite).map_err(|e| Error::device(path, e))
        }
        (false, Some(size)) => {
            // Before there is a file that would be in the way of the next try.
            let size = whole_blocks(size, path)?;
            FileDevice::create(path, size).map_err(|e| Error::host(path, e))
        }
        (false, None) => Err(Error::usage_at(
            path,
            "does not exist; say with --size how large it shall be",
        )),
    }
}

/// A key file that cannot be used.
pub(super) fn key_file(path: &Path, error: KeyFileError) -> Error {
    match error {
        KeyFileError::Io(error) => Error::host(path, error),
        other => Error::failed(format!("{}: {other}", path.display())),
    }
}

/// A store that cannot be used.
pub(super) fn store(path: &Path, error: StoreError) -> Error {
    let exit = match &error {
        StoreError::Io(error) => return Error::host(path, std::io::Error::from(error.kind())),
        StoreError::Damaged | StoreError::Shorter(..) => Exit::Damaged,
        StoreError::Version(_) => Exit::Newer,
        _ => Exit::Failed,
    };
    Error::said(exit, format!("{}: {error}", path.display()))
}
