//! Makes the golden room that `tests/golden.rs` opens: once for each format version, never again after its release.
//!
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/v1`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/v1-reservations reservations`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/catalog2-flags flags`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/v1-append-nonces`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/v1-two-factors two-factors`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/catalog4-snapshots snapshots`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/catalog5-edits edits`
//! `cargo run -p strongroom-room --example golden -- crates/room/tests/golden/stream-v1 stream`

use room::{
    Argon2Cost, Fallocate, FileFlags, FileKind, FileSystem as _, InodeNo, NewCredential, NewFile,
    NewRoom, NewSnapshot, OpenOptions, Room, Secret, SendRequest, SetAttr, SetTime, Suite,
    XattrMode,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("which directory?")?;
    let state = tempfile::tempdir()?;
    let secret = Secret::from(b"golden passphrase".to_vec());
    let mut new = NewRoom::with_credential(NewCredential::Passphrase {
        secret,
        cost: Argon2Cost::LEAST,
    });
    new.open = OpenOptions {
        state_dir: Some(state.path().into()),
        background: false,
        commit_interval_ms: 0,
        ..OpenOptions::default()
    };
    if std::env::args()
        .nth(2)
        .is_some_and(|what| what == "two-factors")
    {
        new.credential = NewCredential::PassphraseAndKeyFile {
            passphrase: "golden passphrase".into(),
            key_file: "golden key file\n".into(),
            cost: Argon2Cost::LEAST,
        };
        let room = Room::create(dir.as_ref(), new)?;
        room.write_file("/letter.txt", b"Both are needed.\n")?;
        room.close()?;
        std::fs::remove_file(std::path::Path::new(&dir).join("lock"))?;
        return Ok(());
    }
    if std::env::args().nth(2).is_some_and(|what| what == "stream") {
        return streams(dir.as_ref(), new);
    }
    new.suite = Some(Suite::Aes256Gcm);
    (new.uid, new.gid) = (1000, 1000);
    let room = Room::create(dir.as_ref(), new)?;
    room.add_slot(
        NewCredential::RawKey(Secret::from((0..32).collect::<Vec<u8>>())),
        "raw",
    )?;
    room.make_dir("/papers/old", true)?;
    room.write_file(
        "/papers/letter.txt",
        b"Dear reader, this room is of format version 1.\n",
    )?;
    let numbers: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
    room.write_file("/numbers", &numbers)?;
    room.sync()?;
    // Overwritten across units, cut, with a hole, and shared.
    let no = room.resolve("/numbers".as_ref(), true)?;
    room.write(no, 16_000, &[0xee; 1000])?;
    let copy = room
        .make(InodeNo::ROOT, b"copy", &NewFile::of_kind(FileKind::Regular))?
        .no;
    room.copy_range(no, 0, copy, 1 << 20, 131_072)?;
    room.link(no, room.resolve("/papers".as_ref(), true)?, b"numbers too")?;
    let link = NewFile {
        target: b"papers/letter.txt".to_vec(),
        ..NewFile::of_kind(FileKind::Symlink)
    };
    room.make(InodeNo::ROOT, b"link", &link)?;
    let name: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
    room.make(InodeNo::ROOT, &name, &NewFile::of_kind(FileKind::Fifo))?;
    room.set_xattr(no, b"user.colour", b"blue", XattrMode::Create, false)?;
    let times = SetAttr {
        mode: Some(0o640),
        uid: Some(7),
        gid: Some(8),
        mtime: Some(SetTime::at(-1, 500_000_000)),
        ..SetAttr::default()
    };
    room.set_attributes(no, &times)?;
    if std::env::args()
        .nth(2)
        .is_some_and(|what| what == "reservations")
    {
        let reserved = room
            .make(
                InodeNo::ROOT,
                b"reserved",
                &NewFile::of_kind(FileKind::Regular),
            )?
            .no;
        room.write(reserved, 40_960, &[0xaa; 4096])?;
        let all = Fallocate::Allocate { keep_size: true };
        room.fallocate(reserved, all, 0, 3 << 20)?;
        room.write(reserved, 8192, &[0xbb; 8192])?;
        room.fallocate(reserved, Fallocate::PunchHole, 1 << 20, 65_536)?;
    }
    if std::env::args().nth(2).is_some_and(|what| what == "flags") {
        for (path, flags) in [
            ("/numbers", FileFlags::IMMUTABLE),
            ("/papers", FileFlags::APPEND_ONLY),
        ] {
            let set = SetAttr {
                flags: Some(flags),
                ..SetAttr::default()
            };
            room.set_attributes(room.resolve(path.as_ref(), true)?, &set)?;
        }
    }
    let in_the_log = match std::env::args().nth(2).as_deref() {
        Some("snapshots") => Some(snapshots(&room)),
        Some("edits") => Some(edits(&room)),
        _ => None,
    };
    if let Some(done) = in_the_log {
        done?;
        std::fs::remove_file(std::path::Path::new(&dir).join("lock"))?;
        // As after a crash: what was synced last is in records of the log.
        std::process::exit(0);
    }
    room.close()?;
    std::fs::remove_file(std::path::Path::new(&dir).join("lock"))?;
    Ok(())
}

/// Four snapshots, one of them deleted and not gone yet, some of it only in the log.
fn snapshots(room: &Room) -> room::Result<()> {
    let create = |name| room.create_snapshot(name, NewSnapshot::default());
    let numbers = room.resolve("/numbers".as_ref(), true)?;
    create("monday")?;
    room.write(numbers, 4096, &[0x11; 20_000])?;
    room.unlink(InodeNo::ROOT, b"link")?;
    room.set_xattr(numbers, b"user.colour", b"red", XattrMode::Replace, false)?;
    create("tuesday")?;
    let cut = SetAttr {
        size: Some(100_000),
        ..SetAttr::default()
    };
    room.set_attributes(numbers, &cut)?;
    let papers = room.resolve("/papers".as_ref(), true)?;
    room.unlink(papers, b"letter.txt")?;
    room.tend()?;
    // From here on in the log.
    room.create_snapshot("hourly", NewSnapshot { automatic: true })?;
    room.write(numbers, 0, &[0x22; 8192])?;
    room.unlink(InodeNo::ROOT, b"copy")?;
    room.sync()?;
    create("thursday")?;
    room.rename_snapshot("thursday", "friday")?;
    room.write(numbers, 50_000, &[0x33; 1000])?;
    room.delete_snapshot("tuesday")
}

/// Blocks of a file that are written and synced one after the other, before and after two snapshots: the records of the log say what is new
/// in the file's map, and in what is kept of it.
fn edits(room: &Room) -> room::Result<()> {
    let numbers = room.resolve("/numbers".as_ref(), true)?;
    let create = |name| room.create_snapshot(name, NewSnapshot::default());
    for round in 0..3 {
        for block in 0..5 {
            let data = [0x10 * (round + 1) + block; 4096];
            room.write(numbers, u64::from(block * 5 + round) * 4096, &data)?;
            room.sync()?;
        }
        match round {
            // The first snapshot takes a commit, which allows such records too.
            0 => drop(create("monday")?),
            1 => drop(create("tuesday")?),
            _ => {}
        }
    }
    let hole = Fallocate::PunchHole;
    room.fallocate(numbers, hole, 100_000, 20_000)?;
    room.fallocate(numbers, Fallocate::Allocate { keep_size: true }, 0, 200_000)?;
    room.sync()
}

/// Streams of two moments of a room, in files of a directory.
fn streams(dir: &std::path::Path, new: NewRoom) -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let room = Room::create(&place.path().join("room"), new)?;
    room.make_dir("/papers", true)?;
    room.write_file(
        "/papers/letter.txt",
        b"Dear reader, this is the first moment.\n",
    )?;
    room.write_file("/draft", &[7; 20_000])?;
    room.create_snapshot("first", NewSnapshot::default())?;
    room.write_file(
        "/papers/letter.txt",
        b"Dear reader, this is the second moment.\n",
    )?;
    room.unlink(InodeNo::ROOT, b"draft")?;
    room.write_file("/note", b"new\n")?;
    room.create_snapshot("second", NewSnapshot::default())?;
    std::fs::create_dir_all(dir)?;
    for (since, to) in [(None, "first"), (Some("first"), "second")] {
        let mut file = std::fs::File::create_new(dir.join(to))?;
        let request = SendRequest {
            to: to.to_owned(),
            since: since.map(str::to_owned),
            ..SendRequest::default()
        };
        room.send(&request, &mut file, &|_, _| true)?;
    }
    Ok(room.close()?)
}
