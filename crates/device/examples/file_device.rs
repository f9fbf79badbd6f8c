//! A file as a block device: numbered bytes that are read, written, made durable and emptied.
//!
//! `cargo run -p strongroom-device --example file_device -- DIRECTORY`: `DIRECTORY/disk.img` must not exist.

use std::error::Error;
use std::path::PathBuf;

use device::{Access, Device, FileDevice, MemoryDevice};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let path = dir.join("disk.img");
    // 1 MiB of zeros, which takes no space before it is written.
    use_it(&FileDevice::create(&path, 1 << 20)?)?;
    // Locked for its lifetime: a second opener, of this process or another, is refused.
    let again = FileDevice::open(&path, Access::ReadOnly)?;
    let mut start = [0; 5];
    again.read_at(&mut start, 4096)?;
    println!("in the file: {}", String::from_utf8_lossy(&start));

    // Volumes, disk servers and NBD take any `Device`: one in memory too.
    use_it(&MemoryDevice::new(1 << 20))
}

fn use_it(device: &dyn Device) -> Result<(), Box<dyn Error>> {
    device.write_at(b"hello", 4096)?;
    // Durable when this returns. After a failure what is on the disk is unknown, and later flushes fail too.
    device.flush()?;
    // Gives space back; `discards_to_zeros` says whether the range reads as zeros then. `write_zeros` always does.
    device.discard(64 << 10, 64 << 10)?;
    // A range beyond the end is an error, not a short read.
    let refused = device.read_at(&mut [0; 2], device.len() - 1).is_err();
    println!("beyond the end: refused {refused}");
    Ok(())
}
