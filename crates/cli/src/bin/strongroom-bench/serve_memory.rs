//! Serves files in memory behind the FUSE library of a mounted room, until they are unmounted.
//!
//! Requests come over io_uring where the kernel offers it, as a room's do. When it is mounted, a line says which it is.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use bench::ceiling::MemoryFiles;
use mount::{MountOptions, Transport};
use strongroom_cli::program::{Error, Result};

/// Where they are mounted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    mountpoint: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let options = MountOptions {
        name: "strongroom-bench".to_owned(),
        transport: Transport::IoUring,
        ..MountOptions::default()
    };
    let failed = |error: mount::MountError| Error::failed(error.to_string());
    let files = Arc::new(MemoryFiles::default());
    let mounted = mount::mount(files, &args.mountpoint, &options).map_err(failed)?;
    mount::tune(mounted.mountpoint());
    let transport = match mounted.transport() {
        Transport::Device => "device",
        Transport::IoUring => "io_uring",
    };
    // Nobody needs to read it.
    let _ = writeln!(std::io::stdout(), "{transport}");
    mounted.wait().map_err(failed)
}
