//! `mount.strongroom ROOM MOUNTPOINT [-sfnv] [-o OPTIONS]`, as mount(8) calls it for `mount -t strongroom` and fstab lines:
//!
//! ```text
//! /srv/work.strongroom  /srv/work  strongroom  noauto,user,passphrase-file=/root/work.pass  0  0
//! ```
//!
//! Invariant: its exit codes are mount(8)'s, not the command's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::options::Options;
use crate::args::Global;
use crate::confinement::Confinement;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;

/// mount(8): the command line was wrong.
const BAD_USE: u8 = 1;
/// mount(8): the mount failed.
const MOUNT_FAILED: u8 = 32;

/// Whether we were called by the helper's name.
pub(crate) fn is_helper(arguments: &[OsString]) -> bool {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == "mount.strongroom" || name == "mount.fuse.strongroom")
}

/// Mounts as the helper.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    match try_run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::to_stderr(format_args!("mount.strongroom: {error}"));
            ExitCode::from(if error.exit() == Exit::Usage {
                BAD_USE
            } else {
                MOUNT_FAILED
            })
        }
    }
}

fn try_run(arguments: &[OsString]) -> Result<()> {
    let parsed = parse(&arguments[1..])?;
    let global = Global {
        json: false,
        verbose: u8::from(parsed.verbose),
        quiet: false,
        confinement: Confinement::default(),
    };
    crate::logging::init_tracing(&global, false);
    if parsed.fake {
        return Ok(());
    }
    super::launch::mount(
        &parsed.room,
        &parsed.mountpoint,
        &parsed.options,
        false,
        &global,
    )
}

#[derive(Debug)]
struct Parsed {
    room: PathBuf,
    mountpoint: PathBuf,
    options: Options,
    fake: bool,
    verbose: bool,
}

fn parse(arguments: &[OsString]) -> Result<Parsed> {
    let usage = || Error::usage("usage: mount.strongroom ROOM MOUNTPOINT [-sfnv] [-o OPTIONS]");
    let (mut places, mut lists) = (Vec::new(), Vec::new());
    let (mut fake, mut sloppy, mut verbose) = (false, false, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        match text.as_ref() {
            "-o" => lists.push(
                rest.next()
                    .ok_or_else(usage)?
                    .to_string_lossy()
                    .into_owned(),
            ),
            // The type, and the namespace mount(8) has entered already.
            "-t" | "-N" => {
                rest.next().ok_or_else(usage)?;
            }
            _ if text.starts_with("-o") => lists.push(text[2..].to_owned()),
            _ if text.len() > 1 && text.starts_with('-') => {
                for letter in text.chars().skip(1) {
                    match letter {
                        's' => sloppy = true,
                        'f' => fake = true,
                        'n' => {}
                        'v' => verbose = true,
                        'r' => lists.push("ro".into()),
                        'w' => lists.push("rw".into()),
                        _ => return Err(usage()),
                    }
                }
            }
            _ => places.push(PathBuf::from(argument)),
        }
    }
    let [room, mountpoint] = <[PathBuf; 2]>::try_from(places).map_err(|_| usage())?;
    let mut options = Options::default();
    for list in lists {
        options.add(&list, sloppy)?;
    }
    Ok(Parsed {
        room,
        mountpoint,
        options,
        fake,
        verbose,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Parsed> {
        parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_mount_passes_is_understood() {
        let parsed = parsed("/srv/r /mnt -sn -t strongroom -o rw,noauto,key-file=/k").unwrap();
        assert_eq!(
            (parsed.room, parsed.mountpoint),
            ("/srv/r".into(), "/mnt".into())
        );
        assert_eq!(parsed.options.credential.key_file, Some("/k".into()));
    }

    #[test]
    fn anything_else_gets_the_usage() {
        for line in [
            "/srv/r",
            "/srv/r /mnt /more",
            "/srv/r /mnt -o",
            "/srv/r /mnt -x",
        ] {
            assert!(
                parsed(line).unwrap_err().to_string().starts_with("usage:"),
                "{line}"
            );
        }
    }

    #[test]
    fn the_helper_is_known_by_its_name() {
        assert!(is_helper(&["/sbin/mount.strongroom".into()]));
        assert!(!is_helper(&["/usr/bin/strongroom".into()]));
        assert!(!is_helper(&[]));
    }
}
