//! `strongroom import --tar`: a tar stream into a room.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use import::tar::Reader;

use super::end::{Done, compare, end, report, stopped};
use super::unpack::Unpack;
use super::{Args, compressed};
use crate::access::{Access, Intent};
use crate::args::Global;
use crate::ask;
use crate::control::client::Client;
use crate::copy::place::Existing;
use crate::error::{Error, Result};
use crate::place::RoomPath;
use crate::progress::Bar;
use crate::tree::make_above;

/// Whether a file begins as a tar stream does.
pub(super) fn looks_like_tar(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(512).read_to_end(&mut first));
    read.is_ok() && first.get(257..262) == Some(b"ustar")
}

pub(super) fn run(args: &Args, tar: &Path, to: &RoomPath, global: &Global) -> Result<()> {
    if args.source_passphrase_file.is_some() || args.source_key_file.is_some() {
        return Err(Error::usage("a tar stream has no key"));
    }
    let is_stdin = tar.as_os_str() == "-";
    let credential = &args.open.credential;
    let from_stdin = credential
        .passphrase_file
        .as_deref()
        .is_some_and(|file| file.as_os_str() == "-");
    if is_stdin && (from_stdin || !credential.any()) && Client::find(&to.room)?.is_none() {
        return Err(Error::usage(
            "standard input brings the tar stream, so the passphrase cannot come from there: name its file with --passphrase-file, or the program that prints it with --passphrase-command",
        ));
    }
    if is_stdin && ask::somebody_is_there() {
        return Err(Error::usage(
            "standard input is a terminal; a tar stream comes from a pipe, as in: tar -cf - DIR | strongroom import --tar - ROOM",
        ));
    }
    let bar = Bar::counting("importing", global);
    let stream: Box<dyn Read> = if is_stdin {
        compressed::standard_input()?
    } else {
        let file = File::open(tar).map_err(|e| Error::host(tar, e))?;
        if let Ok(meta) = file.metadata() {
            // Of a compressed stream the total is not known.
            if compressed::format_of_file(tar).is_none() {
                bar.expect(meta.len());
            }
        }
        compressed::file(file, tar)?
    };
    let mut reader = Reader::new(BufReader::with_capacity(1 << 20, stream));
    let (access, given) = Access::reach_again(&to.room, &args.open, Intent::Change)?;
    let done = (|| {
        let tree = access.tree()?;
        let at = |fault| to.failed(fault);
        make_above(&*tree, &to.path).map_err(at)?;
        if let Err(fault) = tree.stat(&to.path, true) {
            if !fault.is_not_found() {
                return Err(at(fault));
            }
            tree.make_dir(&to.path, 0o755).map_err(at)?;
        }
        let existing = Existing::GoOn {
            overwrite: args.overwrite,
        };
        let mut unpack = Unpack::new(&*tree, &to.path, existing, global, &bar);
        unpack.all(&mut reader)?;
        Ok(unpack.end())
    })();
    bar.end();
    if let Err(error) = &done {
        access.advise_when_full(&to.room, error, global);
    }
    let ended = end(access, to, args, given, done.is_ok());
    let (unpacked, failures) = match done {
        Ok(done) => done,
        Err(error) => return Err(stopped(error, ended)),
    };
    let ended = ended?;
    // Committing took its time.
    bar.go_on()?;
    let total = unpacked.bytes;
    let compared = compare(ended, to, &unpacked.kept, total, global, |verifier| {
        let mut records = unpacked.records.iter();
        records.try_for_each(|(path, record)| verifier.one(path, &record.expected()))
    })?;
    let done = Done {
        files: unpacked.files,
        bytes: unpacked.bytes,
        present: unpacked.present,
        failures,
        kept: unpacked.kept,
    };
    report(done, compared, global)
}
