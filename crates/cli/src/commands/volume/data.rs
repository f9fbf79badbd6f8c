//! `strongroom volume check`, `export` and `import`: the plain contents of a volume, in bounded memory.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use confine::Profile;
use device::{Access, Device};
use serde_json::json;
use volume::{Certainty, OpenOptions};

use super::image::{CredentialArgs, ImageArgs, open_device};
use crate::args::Global;
use crate::confinement::file_or_directory;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::progress::{Bar, interrupted};

/// Bytes read and written at once.
const CHUNK: usize = 1 << 20;
/// Zeros of this length and at these offsets become a hole.
const HOLE: usize = 64 << 10;

/// Say whether the credential opens the volume, and how large it is
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Read every byte too: whether all of the image can be read. A volume cannot show that the bytes are those written
    #[arg(long)]
    read_data: bool,
    #[command(flatten)]
    credential: CredentialArgs,
}

/// Write the plain contents to a file, a block device or standard output
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Where they go: a new file (zeros become holes), a block device with --force, or "-" for standard output
    target: PathBuf,
    /// Write over a file or block device that exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    credential: CredentialArgs,
}

/// Write a plain image into the volume, from its beginning
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// The plain image: a file, a block device, or "-" for standard input
    source: PathBuf,
    #[command(flatten)]
    credential: CredentialArgs,
}

impl CheckArgs {
    pub(super) fn profile(&self) -> Profile {
        let mut profile = self.image.to_read();
        self.credential.keep(&mut profile);
        profile
    }
}

impl ExportArgs {
    pub(super) fn profile(&self) -> Profile {
        let mut profile = self.image.to_read();
        self.credential.keep(&mut profile);
        profile.write.push(file_or_directory(&self.target));
        profile
    }
}

impl ImportArgs {
    pub(super) fn profile(&self) -> Profile {
        let mut profile = self.image.to_change();
        self.credential.keep(&mut profile);
        profile.read.push(self.source.clone());
        profile
    }
}

const READ_ONLY: OpenOptions = OpenOptions {
    read_only: true,
    allow_discards: false,
    any_cost: false,
};

pub(crate) fn check(args: &CheckArgs, global: &Global) -> Result<()> {
    let opened = args.image.open(&args.credential, READ_ONLY, global)?;
    let device = &*opened.device;
    if args.read_data {
        let bar = Bar::start("check", global);
        through(device, &args.image.image, &bar, &mut |_, _| Ok(()))?;
        bar.end();
    }
    let certain = opened.certainty == Certainty::Checked;
    if global.json {
        output::json_line(&json!({
            "image": args.image.image.to_string_lossy(),
            "format": opened.format.to_string(),
            "bytes": device.len(),
            "opened": true,
            "certain": certain,
            "read": args.read_data,
        }));
    } else {
        output::line(format!(
            "{}: {}, {} of contents, opened{}",
            args.image.image.display(),
            opened.format,
            output::size(device.len()),
            if args.read_data {
                ", all of it readable"
            } else {
                ""
            }
        ));
    }
    Ok(())
}

pub(crate) fn export(args: &ExportArgs, global: &Global) -> Result<()> {
    let to_stdout = args.target.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        return Err(Error::usage(
            "the contents of a volume are not written to a terminal: name a file, or send standard output somewhere",
        ));
    }
    if !to_stdout && !args.force && args.target.symlink_metadata().is_ok() {
        return Err(Error::failed_at(
            &args.target,
            "exists; name a new file, or give --force to write over it",
        ));
    }
    let opened = args.image.open(&args.credential, READ_ONLY, global)?;
    let device = &*opened.device;
    let bar = Bar::start("export", global);
    if to_stdout {
        let mut stdout = io::stdout().lock();
        through(device, &args.image.image, &bar, &mut |bytes, _| {
            stdout.write_all(bytes).map_err(|e| {
                if e.kind() == io::ErrorKind::BrokenPipe {
                    // The reader has enough: as `cat` ends then.
                    std::process::exit(0);
                }
                output::not_written(e)
            })
        })?;
        stdout.flush().map_err(output::not_written)?;
    } else {
        to_file(device, &args.image, &args.target, args.force, &bar)?;
    }
    bar.end();
    if global.json && !to_stdout {
        output::json_line(&json!({
            "target": args.target.to_string_lossy(),
            "bytes": device.len(),
        }));
    }
    Ok(())
}

fn to_file(
    device: &dyn Device,
    image: &ImageArgs,
    target: &Path,
    force: bool,
    bar: &Bar,
) -> Result<()> {
    let failed = |e| Error::host(target, e);
    if image.is(target) {
        return Err(Error::usage_at(
            target,
            "is the volume itself, which its contents would be written over: name another file",
        ));
    }
    if force && is_block_device(target) {
        return to_block_device(device, &image.image, target, bar);
    }
    let mut options = File::options();
    options.write(true).mode(0o600);
    if force {
        options.create(true).truncate(false);
    } else {
        options.create_new(true);
    }
    let file = options.open(target).map_err(failed)?;
    // As every opening of an image does: what is served or written elsewhere is not replaced.
    device::lock_alone(target, &file).map_err(|e| Error::device(target, e))?;
    // Whether the file system takes one of that length. Then whatever was there goes, so that holes read as zeros.
    file.set_len(device.len())
        .and_then(|()| file.set_len(0))
        .map_err(failed)?;
    through(device, &image.image, bar, &mut |bytes, at| {
        for (piece, offset) in bytes.chunks(HOLE).zip((at..).step_by(HOLE)) {
            if piece.iter().any(|&b| b != 0) {
                file.write_all_at(piece, offset).map_err(failed)?;
            }
        }
        Ok(())
    })?;
    // A shorter file is what an export left that was cut off.
    file.set_len(device.len())
        .and_then(|()| file.sync_all())
        .map_err(failed)
}

fn is_block_device(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn to_block_device(device: &dyn Device, image: &Path, target: &Path, bar: &Bar) -> Result<()> {
    let failed = |e| Error::host(target, e);
    let disk = open_device(target, Access::ReadWrite)?;
    if disk.len() < device.len() {
        return Err(Error::said(
            Exit::NoSpace,
            format!(
                "{}: has {} bytes, and the contents have {}",
                target.display(),
                disk.len(),
                device.len()
            ),
        ));
    }
    through(device, image, bar, &mut |bytes, at| {
        disk.write_at(bytes, at).map_err(failed)
    })?;
    disk.flush().map_err(failed)
}

/// Gives all of a device to `take`, in order, with the offset; the next chunk is read and decrypted meanwhile.
fn through(
    device: &dyn Device,
    path: &Path,
    bar: &Bar,
    take: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let len = device.len();
    thread::scope(|scope| {
        // What is read waits here; what was taken comes back. Three buffers in all.
        let (full, filled) = mpsc::sync_channel::<io::Result<Vec<u8>>>(1);
        let (emptied, empty) = mpsc::channel();
        for _ in 0..3 {
            let _ = emptied.send(vec![0; CHUNK]);
        }
        scope.spawn(move || {
            let mut at = 0;
            while at < len {
                // The other side is gone when it has failed.
                let Ok(mut buffer) = empty.recv() else { return };
                buffer.resize((len - at).min(CHUNK as u64) as usize, 0);
                let read = device.read_at(&mut buffer, at).map(|()| buffer);
                at += CHUNK as u64;
                if full.send(read).is_err() {
                    return;
                }
            }
        });
        let mut at = 0;
        for chunk in filled {
            let chunk = chunk.map_err(|e| Error::host(path, e))?;
            take(&chunk, at)?;
            at += chunk.len() as u64;
            if !bar.report(at, len) {
                return Err(interrupted());
            }
            let _ = emptied.send(chunk);
        }
        Ok(())
    })
}

pub(crate) fn import(args: &ImportArgs, global: &Global) -> Result<()> {
    let from_stdin = args.source.as_os_str() == "-";
    let named = args.credential.passphrase_file.is_some()
        || args.credential.key_file.is_some()
        || args.credential.master_key_file.is_some();
    if from_stdin && !named {
        return Err(Error::usage(
            "standard input is the plain image: give the passphrase with --passphrase-file FILE",
        ));
    }
    if args.image.is(&args.source) {
        return Err(Error::usage_at(
            &args.source,
            "is the volume itself: name a plain image",
        ));
    }
    let (mut source, length): (Box<dyn Read>, _) = if from_stdin {
        (Box::new(io::stdin().lock()), None)
    } else {
        let failed = |e| Error::host(&args.source, e);
        let mut file = File::open(&args.source).map_err(failed)?;
        let length = length(&mut file).map_err(failed)?;
        (Box::new(file), length)
    };
    let opened = args
        .image
        .open(&args.credential, OpenOptions::default(), global)?;
    let device = &*opened.device;
    let too_long = || {
        Error::said(
            Exit::NoSpace,
            format!(
                "{}: is longer than the {} bytes of the volume",
                args.source.display(),
                device.len()
            ),
        )
    };
    if length.is_some_and(|length| length > device.len()) {
        return Err(too_long());
    }
    let bar = Bar::start("import", global);
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let got = fill(&mut *source, &mut buffer).map_err(|e| Error::host(&args.source, e))?;
        if got == 0 {
            break;
        }
        if at + got as u64 > device.len() {
            return Err(too_long());
        }
        device
            .write_at(&buffer[..got], at)
            .map_err(|e| Error::host(&args.image.image, e))?;
        at += got as u64;
        if !bar.report(at, device.len()) {
            return Err(interrupted());
        }
    }
    device
        .flush()
        .map_err(|e| Error::host(&args.image.image, e))?;
    bar.end();
    if global.json {
        output::json_line(&json!({
            "image": args.image.image.to_string_lossy(),
            "bytes": at,
            "left_as_they_were": device.len() - at,
        }));
    } else if at < device.len() {
        output::note(
            global,
            format!(
                "{} written; the {} behind them are left as they were",
                output::size(at),
                output::size(device.len() - at)
            ),
        );
    }
    Ok(())
}

/// Bytes of a file or block device; `None` of what has no length.
fn length(file: &mut File) -> io::Result<Option<u64>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    Ok(Some(length))
}

/// Fills the buffer as far as there is input.
fn fill(source: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
