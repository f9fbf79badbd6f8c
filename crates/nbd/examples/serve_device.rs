//! Serves a file as a network block device until standard input ends (Ctrl-D).
//!
//! `cargo run --release -p strongroom-nbd --example serve_device -- DIRECTORY [SIZE]`: the device is `DIRECTORY/disk.img`, created with
//! SIZE bytes (64 MiB) where it is missing, the socket `DIRECTORY/nbd.sock`. Then, for example:
//! `nbdcopy big.iso 'nbd+unix:///?socket=DIRECTORY/nbd.sock'`

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device::{Access, FileDevice};
use nbd::{Config, Export, Listen, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir: PathBuf = args.next().ok_or("which directory?")?.into();
    let size = args.next().map_or(Ok(64 << 20), |size| size.parse())?;
    let image = dir.join("disk.img");
    // Any device will do: a volume's contents, memory, your own.
    let device = match image.exists() {
        true => FileDevice::open(&image, Access::ReadWrite)?,
        false => FileDevice::create(&image, size)?,
    };
    // The export without a name is what clients get that ask for none.
    let export = Export {
        name: String::new(),
        description: String::new(),
        device: Arc::new(device),
        read_only: false,
    };
    // Over a socket file the file's permissions decide who connects. Over TCP require TLS: `Config::policy`.
    let config = Config {
        listen: Listen::Unix(dir.join("nbd.sock")),
        ..Config::default()
    };
    let mut server = Server::start(config, vec![export])?;
    println!("serving");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Answers what was asked, flushes the device, and returns an error where that fails.
    server.stop(Duration::from_secs(10))?;
    println!("stopped");
    Ok(())
}
