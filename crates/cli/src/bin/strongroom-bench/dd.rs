//! `strongroom bench dd`: a raw device or file against its decrypted counterpart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bench::published::{self, DdRow};
use bench::store::VolumeKey;
use bench::work::{Dd, Work};
use volume::OpenOptions;

use strongroom_cli::program::{Error, Global, Result, VolumeCredentialArgs};

use super::{Common, Handling, Wanted, bytes, finish_done, measure};

/// Read a raw device or file and its decrypted counterpart as dd does, and compare
///
/// One thread, one stream, from caches emptied before, as in the table of FileVault 2: 1 GiB by 4 KiB and 2 GiB by 64 KiB.
/// Both are opened for reading only. An encrypted volume is its own raw device: `bench dd disk.img volume:disk.img`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The encrypted device or file
    raw: PathBuf,
    /// The same, decrypted: a device or file, volume:IMAGE for the contents of an encrypted volume, or the address of a server of
    /// them, nbd://HOST/NAME or nbd+unix:///NAME?socket=PATH
    decrypted: PathBuf,
    /// Sizes of a read and of all reads, as in 4KiB:1GiB; may be repeated [default: 4KiB:1GiB 64KiB:2GiB]
    #[arg(long, value_name = "BLOCK:TOTAL", value_parser = read_sizes)]
    read: Vec<Dd>,
    /// Refused: nothing is ever written here
    #[arg(long, hide = true)]
    write: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    handling: Handling,
    /// The header of volume:IMAGE, where it is kept in a file of its own
    #[arg(long, value_name = "FILE")]
    header: Option<PathBuf>,
    #[command(flatten)]
    credential: VolumeCredentialArgs,
}

fn read_sizes(text: &str) -> std::result::Result<Dd, String> {
    let (block, total) = text
        .split_once(':')
        .ok_or_else(|| format!("'{text}': write it as BLOCK:TOTAL, as in 4KiB:1GiB"))?;
    let (block, total) = (bytes(block)?, bytes(total)?);
    if !block.is_multiple_of(512) || block > 64 << 20 || !total.is_multiple_of(block) {
        return Err(format!(
            "'{text}': a block is a multiple of 512 bytes up to 64 MiB, and the total a multiple of the block"
        ));
    }
    Ok(Dd { block, total })
}

/// The target that a path is. One that begins like an address or a kind is still a path.
fn path_of(path: &Path) -> Result<String> {
    let meta = std::fs::metadata(path).map_err(|e| Error::host(path, e))?;
    if meta.is_dir() {
        return Err(Error::usage_at(
            path,
            "a directory; dd reads a file or block device",
        ));
    }
    let path = std::path::absolute(path).map_err(|e| Error::host(path, e))?;
    let text = path.into_os_string().into_string();
    text.map_err(|name| Error::usage_at(Path::new(&name), "the name is no text; use a link to it"))
}

/// The same of the decrypted side, which need not be a path.
fn decrypted_of(given: &Path) -> Result<String> {
    if !given.exists()
        && let Some(text) = given.to_str()
        && ["volume:", "nbd://", "nbd+unix://"]
            .iter()
            .any(|kind| text.starts_with(kind))
    {
        return Ok(text.to_owned());
    }
    path_of(given)
}

/// Refuses what would be ignored, and a file that cannot be read, before anything is measured.
fn check_key(args: &Args, decrypted: &str) -> Result<()> {
    let files = [args.header.as_deref(), args.credential.file()];
    let given = files.into_iter().flatten().next().is_some()
        || args.credential.passphrase_file.is_some()
        || args.credential.any_kdf_cost;
    if given && !decrypted.starts_with("volume:") {
        return Err(Error::usage(
            "what opens a volume is only for volume:IMAGE: neither a file nor a server of its contents needs it",
        ));
    }
    for file in files.into_iter().flatten() {
        let host = |e| Error::host(file, e);
        // A pipe gives its bytes once: only their user opens it.
        if std::fs::metadata(file).map_err(host)?.is_file() {
            std::fs::File::open(file).map_err(host)?;
        }
    }
    Ok(())
}

/// What opens a volume that is named on the command line.
fn volume_key(header: Option<PathBuf>, credential: VolumeCredentialArgs) -> VolumeKey {
    let ask = Arc::new(move |image: &Path| {
        let options = OpenOptions {
            any_cost: credential.any_kdf_cost,
            ..OpenOptions::default()
        };
        match credential.read(image) {
            Ok(key) => Ok((key, options)),
            Err(e) => Err(bench::Error::store(
                image.display().to_string(),
                e.to_string(),
            )),
        }
    });
    VolumeKey { header, ask }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    if args.write {
        return Err(Error::usage(
            "--write: refused: what is measured here holds somebody's data, and writing would destroy it; to measure \
             writing, use `strongroom bench compare` with two directories, in which files are created and removed again",
        ));
    }
    if args.common.size.is_some() {
        return Err(Error::usage("--size: say it with --read BLOCK:TOTAL here"));
    }
    let reads = if args.read.is_empty() {
        let (kib, gib) = (1 << 10, 1 << 30);
        vec![
            Dd {
                block: 4 * kib,
                total: gib,
            },
            Dd {
                block: 64 * kib,
                total: 2 * gib,
            },
        ]
    } else {
        args.read.clone()
    };
    let decrypted = decrypted_of(&args.decrypted)?;
    check_key(&args, &decrypted)?;
    let targets = vec![path_of(&args.raw)?, decrypted];
    let wanted = Wanted {
        command: "dd",
        options: reads
            .iter()
            .map(|dd| format!("--read {}:{}", dd.block, dd.total))
            .collect(),
        targets,
        labels: ["raw", "decrypted"].map(String::from).into(),
        works: reads
            .iter()
            .map(|dd| Box::new(*dd) as Box<dyn Work>)
            .collect(),
        noise: false,
        suite: None,
        key: None,
        volume_key: Some(volume_key(args.header, args.credential)),
    };
    let mut done = measure(wanted, &args.common, &args.handling, global)?;
    let report = &done.report;
    let rows: Vec<DdRow<'_>> = reads
        .iter()
        .map(|dd| {
            let of = |store: &str| {
                let rows = &report.rows;
                rows.iter()
                    .find(|row| row.store == store && row.work == dd.name())
            };
            DdRow {
                block: dd.block,
                total: dd.total,
                raw: of("raw"),
                decrypted: of("decrypted"),
                comparison: report.comparisons.iter().find(|one| one.work == dd.name()),
            }
        })
        .collect();
    let table = published::dd(&rows);
    done.report.tables.push(table);
    finish_done(done, &args.common, global)
}
