//! Serves files in memory behind the FUSE library of a mounted room, until they are unmounted.

use std::path::PathBuf;
use std::sync::Arc;

use bench::ceiling::MemoryFiles;
use mount::MountOptions;
use strongroom_cli::program::{Error, Result};

/// Where they are mounted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    mountpoint: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let options = MountOptions {
        name: "strongroom-bench".to_owned(),
        ..MountOptions::default()
    };
    let failed = |error: mount::MountError| Error::failed(error.to_string());
    let files = Arc::new(MemoryFiles::default());
    let mounted = mount::mount(files, &args.mountpoint, &options).map_err(failed)?;
    mount::tune(mounted.mountpoint());
    mounted.wait().map_err(failed)
}
