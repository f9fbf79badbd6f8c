//! `strongroom bench small-files`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bench::run_file::WorkDir;
use bench::spans::Spans;
use bench::work::Begun;
use bench::work::small_files::{
    self, Connect, Directory, Library, Maker, MountedHere, Share, Shared,
};

use metadata_client::{ClientOptions, SharedRoom};
use metadata_proto::identity::Identity;

use strongroom_cli::program::{Global, Result};

use super::{Common, begin, bytes, failed, finish, stop_flag};

/// Do each operation once on each of many small files, in a random order, and say where its time goes
///
/// In a plain directory, in a new room through the library, and in one that this very process mounts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the files are created, and removed at the end [default: here]
    #[arg(value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// How many files
    #[arg(long, value_name = "N", default_value_t = 700, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Bytes of each file: a multiple of 4096
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = bytes)]
    size: u64,
    /// Only these stores; may be repeated
    #[arg(long, value_name = "STORE")]
    store: Vec<Which>,
    /// Also shared storage, mounted by this very process; may be repeated. With the identity of a second user, who is not root,
    /// also what it costs to take rights away from him
    #[arg(long, value_name = "LABEL,HOST:PORT,IDENTITY-FILE[,IDENTITY-FILE]", value_parser = shared)]
    shared: Vec<At>,
    /// Where the files of the shared disks, and the room of their metadata server, are, if they are on this machine
    #[arg(long, value_name = "DIRECTORY")]
    disks: Option<PathBuf>,
    /// Also drop the kernel's names and inodes before reading and opening, for everybody on this machine; needs root
    #[arg(long)]
    drop_caches: bool,
    /// Seed of data and orders [default: a new one, printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Also write a page for the browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Shared storage as the command line says it.
#[derive(Debug, Clone)]
struct At {
    label: String,
    address: String,
    identity: PathBuf,
    reader: Option<PathBuf>,
}

fn shared(text: &str) -> std::result::Result<At, String> {
    let parts: Vec<&str> = text.splitn(4, ',').collect();
    let [label, address, identity, ref reader @ ..] = parts[..] else {
        return Err(format!(
            "'{text}' is not three: write it as secure,host:7000,ada.identity"
        ));
    };
    Ok(At {
        label: label.into(),
        address: address.into(),
        identity: identity.into(),
        reader: reader.first().map(PathBuf::from),
    })
}

impl At {
    fn share(&self, disks: PathBuf) -> Share {
        Share {
            label: format!("shared, {}", self.label),
            target: format!("strongroom://{}/", self.address),
            disks,
            connect: connect(&self.address, &self.identity),
            reader: self.reader.as_ref().map(|who| connect(&self.address, who)),
        }
    }
}

fn connect(address: &str, identity: &Path) -> Connect {
    let (address, path) = (address.to_owned(), identity.to_owned());
    Box::new(move || {
        let file = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = zeroize::Zeroizing::new(std::fs::read(&path).map_err(|e| file(&e))?);
        let identity = Identity::parse(&text).map_err(|e| file(&e))?;
        let options = ClientOptions::new(&address);
        let room = SharedRoom::connect(options, &identity).map_err(|e| e.to_string())?;
        let room = Arc::new(room);
        let ended = room.clone();
        Ok((
            room,
            Box::new(move || ended.end().map_err(|e| e.to_string())),
        ))
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// A plain directory
    Directory,
    /// A room through the library
    Room,
    /// A mounted room
    Mounted,
}

impl Which {
    fn word(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Room => "room",
            Self::Mounted => "mounted",
        }
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let begun = Begun::now();
    let seed = begin::seed(args.seed);
    let options = small_files::Options {
        files: args.files,
        size: usize::try_from(args.size).unwrap_or(usize::MAX),
        seed,
        drop_caches: args.drop_caches,
    };
    let stores = match &args.store[..] {
        [] if !args.shared.is_empty() => Vec::new(),
        [] => vec![Which::Directory, Which::Room, Which::Mounted],
        some => some.to_vec(),
    };
    let mut said = vec![
        format!("--files {}", args.files),
        format!("--size {}", args.size),
        format!("--seed {seed}"),
    ];
    said.extend(args.drop_caches.then(|| "--drop-caches".to_owned()));
    said.extend(
        args.store
            .iter()
            .map(|store| format!("--store {}", store.word())),
    );
    let common = Common {
        rounds: 1,
        size: Some(args.size),
        seconds: 0.0,
        seed: Some(seed),
        only: Vec::new(),
        html: args.html,
    };
    let stop = stop_flag();
    let progress = begin::progress(global);
    // Removed when this ends, however it ends: after the stores, which are unmounted first.
    let mut work: Vec<WorkDir> = Vec::new();
    let mut subjects: Vec<Maker<'_>> = Vec::new();
    for store in stores {
        let dir = begin::work_directory(&args.directory)?;
        let within = dir.path().to_owned();
        let run = dir.run().clone();
        work.push(dir);
        subjects.push(Box::new(move || {
            Ok(match store {
                Which::Directory => Box::new(Directory::new(&within)?),
                Which::Room => Box::new(Library::new(&within)?),
                Which::Mounted => Box::new(MountedHere::new(&within, run)?),
            })
        }));
    }
    for at in &args.shared {
        let reader = at.reader.as_ref().map_or("", |_| ", a reader");
        said.push(format!("--shared {},{}{reader}", at.label, at.address));
        let dir = begin::work_directory(&args.directory)?;
        let (within, run) = (dir.path().to_owned(), dir.run().clone());
        let share = at.share(args.disks.clone().unwrap_or_else(|| within.clone()));
        work.push(dir);
        subjects.push(Box::new(move || {
            Ok(Box::new(Shared::new(share, &within, run)?))
        }));
    }
    let spans = Spans::global();
    let out = small_files::run(&options, subjects, spans.as_deref(), &*progress, &stop);
    let out = out.map_err(failed)?;
    for dir in &mut work {
        dir.remove().map_err(failed)?;
    }
    finish(
        &out.report("small-files", said, seed, begun),
        &common,
        global,
    )
}
