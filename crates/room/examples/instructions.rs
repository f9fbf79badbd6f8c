//! Small reads and writes of a room, for counting their instructions: `scripts/instructions.sh` runs this under callgrind.
//!
//! `cargo run -p strongroom-room --example instructions -- COUNT`: that many of each operation. Each is a function of its own, so that
//! callgrind counts it apart: `apart` keeps the compiler from making one of those that do the same. The count of instructions is the same
//! however busy the machine is.

use std::process::ExitCode;

use room::{
    FileKind, FileSystem, InodeNo, NewCredential, NewFile, NewRoom, NewSnapshot, OpenOptions, Room,
    Secret,
};

const BLOCK: u64 = 4096;
/// Bytes of the file.
const SIZE: u64 = 16 << 20;

/// Places that are all over the file, and never one behind the other.
fn places(count: u64) -> impl Iterator<Item = u64> {
    let blocks = SIZE / BLOCK - 1;
    (0..count).map(move |i| i * 1031 % blocks * BLOCK)
}

/// Makes the function that it is called in another than all others.
fn apart(name: &str) {
    std::hint::black_box(name);
}

#[inline(never)]
fn write_block(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_block");
    room.write(no, at, data)
}

#[inline(never)]
fn write_across_blocks(
    room: &dyn FileSystem,
    no: InodeNo,
    at: u64,
    data: &[u8],
) -> room::Result<()> {
    apart("write_across_blocks");
    room.write(no, at, data)
}

/// The first change of the block since a snapshot, in a unit that holds others.
#[inline(never)]
fn write_kept_block(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_kept_block");
    room.write(no, at, data)
}

/// The same of a block that was written alone.
#[inline(never)]
fn write_kept_unit(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_kept_unit");
    room.write(no, at, data)
}

/// The next change of the block since the snapshot.
#[inline(never)]
fn write_block_again(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_block_again");
    room.write(no, at, data)
}

/// Durable, with all blocks of `write_kept_unit`.
#[inline(never)]
fn sync_kept(room: &dyn FileSystem) -> room::Result<()> {
    apart("sync_kept");
    room.sync()
}

/// The same without a snapshot.
#[inline(never)]
fn sync_blocks(room: &dyn FileSystem) -> room::Result<()> {
    apart("sync_blocks");
    room.sync()
}

/// A block, durable.
#[inline(never)]
fn write_synced(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_synced");
    room.write(no, at, data)?;
    room.fsync(no)
}

/// The same, where all blocks were written alone.
#[inline(never)]
fn write_alone_synced(
    room: &dyn FileSystem,
    no: InodeNo,
    at: u64,
    data: &[u8],
) -> room::Result<()> {
    apart("write_alone_synced");
    room.write(no, at, data)?;
    room.fsync(no)
}

/// The first change of the block since a snapshot, durable.
#[inline(never)]
fn write_kept_synced(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_kept_synced");
    room.write(no, at, data)?;
    room.fsync(no)
}

/// The same as `write_alone_synced`, soon after a snapshot: of most chunks nothing is kept for it yet.
#[inline(never)]
fn write_soon_synced(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("write_soon_synced");
    room.write(no, at, data)?;
    room.fsync(no)
}

#[inline(never)]
fn append_block(room: &dyn FileSystem, no: InodeNo, at: u64, data: &[u8]) -> room::Result<()> {
    apart("append_block");
    room.write(no, at, data)
}

/// As a mount reads.
#[inline(never)]
fn read_block(room: &dyn FileSystem, no: InodeNo, at: u64, buf: &mut [u8]) -> room::Result<()> {
    apart("read_block");
    room.read(no, at, buf)?;
    room.touch_atime(no);
    Ok(())
}

#[inline(never)]
fn read_part(room: &dyn FileSystem, no: InodeNo, at: u64, buf: &mut [u8]) -> room::Result<()> {
    apart("read_part");
    room.read(no, at, buf)?;
    room.touch_atime(no);
    Ok(())
}

fn run(count: u64) -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let mut new = NewRoom::with_credential(NewCredential::RawKey(Secret::from(vec![7; 32])));
    new.suite = Some(room::Suite::Aes256Gcm);
    new.open = OpenOptions {
        commit_interval_ms: 0,
        background: false,
        ..OpenOptions::default()
    };
    let room = Room::create(&dir.path().join("room"), new)?;
    let fs: &dyn FileSystem = &room;
    let file = |name: &[u8]| fs.make(InodeNo::ROOT, name, &NewFile::of_kind(FileKind::Regular));
    let (filled, appended) = (file(b"filled")?.no, file(b"appended")?.no);
    let data = vec![0x5a; 1 << 20];
    for at in (0..SIZE).step_by(data.len()) {
        fs.write(filled, at, &data)?;
    }
    fs.sync()?;

    let mut buf = vec![0; BLOCK as usize];
    for at in places(count) {
        read_block(fs, filled, at, &mut buf)?;
    }
    for at in places(count) {
        read_part(fs, filled, at + 100, &mut buf[..512])?;
    }
    let block = &data[..BLOCK as usize];
    for i in 0..count {
        append_block(fs, appended, i * BLOCK, block)?;
    }
    for at in places(count) {
        write_block(fs, filled, at, block)?;
    }
    sync_blocks(fs)?;
    for at in places(count) {
        write_across_blocks(fs, filled, at + 100, block)?;
    }
    let (kept, synced, kept_synced) = (
        file(b"kept")?.no,
        file(b"synced")?.no,
        file(b"kept-synced")?.no,
    );
    for no in [kept, synced, kept_synced] {
        for at in (0..SIZE).step_by(data.len()) {
            fs.write(no, at, &data)?;
        }
    }
    fs.sync()?;
    for at in places(count) {
        write_synced(fs, synced, at, block)?;
    }
    for at in places(count) {
        write_alone_synced(fs, synced, at, block)?;
    }
    let snapshot = |name: &str| room.create_snapshot(name, NewSnapshot::default());
    snapshot("first")?;
    for at in places(count) {
        write_kept_block(fs, kept, at, block)?;
    }
    snapshot("second")?;
    for at in places(count) {
        write_kept_unit(fs, kept, at, block)?;
    }
    sync_kept(fs)?;
    for at in places(count) {
        write_block_again(fs, kept, at, block)?;
    }
    for at in places(count) {
        write_kept_synced(fs, kept_synced, at, block)?;
    }
    // One write for each chunk between two snapshots.
    let mut places = places(count).peekable();
    for i in 0.. {
        if places.peek().is_none() {
            break;
        }
        snapshot(&format!("soon {i}"))?;
        for at in places.by_ref().take((SIZE >> 20) as usize) {
            write_soon_synced(fs, kept_synced, at, block)?;
        }
    }
    room.close()?;
    Ok(())
}

fn main() -> ExitCode {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let Some(count) = count else {
        eprintln!("usage: instructions COUNT");
        return ExitCode::from(2);
    };
    match run(count) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
