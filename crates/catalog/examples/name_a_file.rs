//! A file's name and attributes in an encrypted catalog, made durable together.
//!
//! `cargo run -p strongroom-catalog --example name_a_file -- DIRECTORY`: the directory must exist.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use seal::{MasterKey, RoomId};
use storage::{HostStorage, Storage};
use strongroom_catalog::{
    Catalog, Change, FileFlags, FileKind, Inode, InodeNo, OpenOptions, Timestamp,
};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let storage: Arc<dyn Storage> = Arc::new(HostStorage::open(&dir)?);
    // A room derives this key from its master key: crate `seal`.
    let key = MasterKey::random().catalog_key(&RoomId::random());
    let options = OpenOptions::default();

    let catalog = Catalog::create(&storage, "catalog.db", &key, &options)?;
    let no = catalog.new_inode();
    // One call is one operation: after a crash the file is there with its name, or not at all.
    catalog.apply(&[
        Change::PutInode(&empty_file(no)),
        Change::put_entry(InodeNo::ROOT, b"letter.txt", no, FileKind::Regular),
    ])?;
    // Visible at once, durable only from here on. The generation rises with each commit: an older catalog put back is noticed by it.
    let generation = catalog.commit()?;
    drop(catalog);

    let catalog = Catalog::open(&storage, "catalog.db", &key, &options)?;
    let found = catalog
        .lookup(InodeNo::ROOT, b"letter.txt")?
        .ok_or("no such name")?;
    println!("letter.txt: mode {:o}", found.mode);
    println!(
        "the same generation: {}",
        catalog.generation() == generation
    );
    Ok(())
}

fn empty_file(no: InodeNo) -> Inode {
    let now = Timestamp::default();
    Inode {
        mode: 0o644,
        flags: FileFlags::default(),
        uid: 1000,
        gid: 1000,
        ..Inode::new(no, FileKind::Regular, now)
    }
}
