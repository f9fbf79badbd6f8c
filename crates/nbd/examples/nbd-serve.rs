//! Serves a file on a Unix socket until it is killed: the bare server, for measuring and for profiles.
//!
//! `cargo run --release -p strongroom-nbd --example nbd-serve FILE SOCKET`

use std::path::Path;
use std::sync::Arc;

use device::{Access, FileDevice};
use nbd::{Config, Export, Listen, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(file), Some(socket)) = (args.next(), args.next()) else {
        return Err("give a file and a socket".into());
    };
    let export = Export {
        name: String::new(),
        description: String::new(),
        device: Arc::new(FileDevice::open(Path::new(&file), Access::ReadWrite)?),
        read_only: false,
    };
    let config = Config {
        listen: Listen::Unix(socket.into()),
        ..Config::default()
    };
    let _server = Server::start(config, vec![export])?;
    loop {
        std::thread::park();
    }
}
