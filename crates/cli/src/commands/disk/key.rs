//! `strongroom disk key`: how long a disk's keys are valid, and new ones.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netdisk::KeyFile;
use serde_json::json;

use super::init::key_file;
use crate::args::Global;
use crate::error::{Error, Result};
use crate::mounting::options::duration;
use crate::output;

/// Show and renew the keys of a network disk
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show which disk a key file is of, and when its certificate ends
    Show(Show),
    /// Make new keys, in a new file; a disk served with it accepts the present ones for a while
    Rotate(Rotate),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// The disk's secret key, which `disk init` wrote
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Rotate {
    /// The disk's secret key, which stays as it is
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Where the new one goes: a new file, for `disk serve`
    #[arg(long, value_name = "FILE")]
    key_out: PathBuf,
    /// Where the metadata server's part of it goes: a new file, for `disk add` [default: FILE of --key-out, with .add]
    #[arg(long, value_name = "FILE")]
    add_out: Option<PathBuf>,
    /// A disk served with the new keys accepts the present ones for this long from now on: 12h, 7d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    overlap: Duration,
}

pub(crate) fn run(args: &Args, global: &Global) -> Result<()> {
    match &args.command {
        Command::Show(args) => show(args, global),
        Command::Rotate(args) => rotate(args, global),
    }
}

fn show(args: &Show, global: &Global) -> Result<()> {
    let keys = KeyFile::read(&args.key).map_err(|e| key_file(&args.key, e))?;
    let ends = keys.certificate.as_ref().map(|it| it.end());
    let until = keys.previous.as_ref().map(|it| it.until);
    if global.json {
        output::json_line(
            &json!({"disk": keys.id.to_string(), "certificate_end": ends.flatten(), "previous_until": until}),
        );
        return Ok(());
    }
    output::line(format!("disk         {}", keys.id));
    if let Some(end) = ends {
        output::line(format!("certificate  {}", output::end(end)));
    }
    if let Some(until) = until {
        output::line(format!("keys before  {}", output::end(Some(until))));
    }
    Ok(())
}

fn rotate(args: &Rotate, global: &Global) -> Result<()> {
    let part = args
        .add_out
        .clone()
        .unwrap_or_else(|| with(&args.key_out, ".add"));
    let failures = [&args.key, &args.key_out].map(|path| with(path, ".failures"));
    for path in [&args.key_out, &part, &failures[1]] {
        if path.symlink_metadata().is_ok() {
            return Err(Error::usage_at(
                path,
                "exists; a disk's key is never written over: choose another name",
            ));
        }
    }
    let keys = KeyFile::read(&args.key).map_err(|e| key_file(&args.key, e))?;
    let renewed = keys
        .renewed(args.overlap)
        .map_err(|e| key_file(&args.key, e))?;
    let keep = || {
        renewed
            .write(&args.key_out)
            .map_err(|e| key_file(&args.key_out, e))?;
        renewed.write_part(&part).map_err(|e| key_file(&part, e))?;
        // Failed flushes are counted beside the key: the count goes along.
        if failures[0].exists() {
            std::fs::copy(&failures[0], &failures[1]).map_err(|e| Error::host(&failures[1], e))?;
        }
        Ok(())
    };
    keep().inspect_err(|_| {
        // They were created here, and would be in the way of the next try.
        for path in [&args.key_out, &part, &failures[1]] {
            let _ = std::fs::remove_file(path);
        }
    })?;
    if global.json {
        output::json_line(&json!({
            "disk": renewed.id.to_string(),
            "key": args.key_out.to_string_lossy(),
            "add": part.to_string_lossy(),
            "overlap": args.overlap.as_secs(),
        }));
        return Ok(());
    }
    output::line(format!("disk    {}", renewed.id));
    output::line(format!("key     {} (secret)", args.key_out.display()));
    output::line(format!("add     {} (secret)", part.display()));
    output::note(
        global,
        "Restart the disk server with the new key; then have the metadata server use it: `strongroom disk add` with the same name.",
    );
    Ok(())
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}
