//! Creates a LUKS2 volume in a file, without root, opens it by its passphrase and writes to its contents.
//!
//! `cargo run -p strongroom-volume --example luks_volume -- DIRECTORY`: `DIRECTORY/disk.luks` must not exist. `cryptsetup` opens it too.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use device::{Access, Device, FileDevice};
use volume::luks::{FormatOptions, KdfOptions};
use volume::{Credential, OpenOptions};

const PASSPHRASE: &[u8] = b"correct horse battery staple";

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let path = dir.join("disk.luks");
    // The header takes the first 16 MiB. The file is sparse: it grows as it is written.
    let image: Arc<dyn Device> = Arc::new(FileDevice::create(&path, 64 << 20)?);
    let options = FormatOptions {
        label: "example".into(),
        // So that the example is quick. Leave it out: the default, Argon2id with up to 1 GiB, makes guessing expensive.
        kdf: Some(KdfOptions::Argon2 {
            i: false,
            memory_kib: 32 << 10,
            passes: 4,
            lanes: 1,
        }),
        ..FormatOptions::default()
    };
    drop(volume::luks::format(image, None, &options, PASSPHRASE)?);

    let image: Arc<dyn Device> = Arc::new(FileDevice::open(&path, Access::ReadWrite)?);
    println!("{}", volume::recognise(&*image)?.ok_or("no volume")?);
    // Whatever the format, the contents are a device: mount a file system from it by NBD, or read it here.
    let passphrase = Credential::Passphrase(PASSPHRASE.to_vec().into());
    let contents = volume::open(image.clone(), None, &passphrase, OpenOptions::default())?;
    contents.write_at(b"hello", 0)?;
    contents.flush()?;
    let mut back = [0; 5];
    contents.read_at(&mut back, 0)?;
    println!("{}", String::from_utf8_lossy(&back));

    // What is on the disk is something else.
    image.read_at(&mut back, 16 << 20)?;
    println!("encrypted: {}", &back != b"hello");
    Ok(())
}
