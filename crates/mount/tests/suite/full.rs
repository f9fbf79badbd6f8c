//! A full room: programs learn it from `write`, and nothing that was accepted is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::common::{Disk, Mount};
use mount::MountOptions;

const MIB: usize = 1 << 20;

/// A room on a small disk, with about `left` MiB for new data; the rest is reserved by the file `ballast`.
fn nearly_full(disk: &Disk, left: u64) -> Option<Mount> {
    let mount = Mount::in_dir(disk.dir(), MountOptions::default())?;
    mount::tune(&mount.path(""));
    let ballast = File::create(mount.path("ballast")).unwrap();
    allocate(&ballast, 0, available(&mount) - (left << 20)).unwrap();
    Some(mount)
}

fn available(mount: &Mount) -> u64 {
    let s = rustix::fs::statvfs(mount.path("")).unwrap();
    s.f_bavail * s.f_frsize
}

fn allocate(file: &File, at: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::empty(),
        at,
        len,
    )?)
}

fn is_full<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
}

/// 4 KiB unlike others.
fn block(i: usize) -> Vec<u8> {
    let numbers = (0..512_u64).map(|n| (n + 1).wrapping_mul(i as u64 * 2 + 1));
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// Bytes that differ for every MiB.
fn piece(i: usize) -> Vec<u8> {
    static PIECE: LazyLock<Vec<u8>> = LazyLock::new(|| (0..256).flat_map(block).collect());
    let mut piece = PIECE.clone();
    piece[..8].copy_from_slice(&(i as u64).to_le_bytes());
    piece
}

/// Appends pieces until there is no space; how many went in.
fn fill(file: &mut File) -> usize {
    for i in 0.. {
        if let Err(e) = file.write_all(&piece(i)) {
            assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "{e}");
            return i;
        }
        assert!(i < 4096, "it takes whatever is written");
    }
    unreachable!()
}

/// `write` succeeded without end: 154 GB on a disk of 1 GB. Only `fsync` or `close` failed, and the size was that of what
/// was lost.
#[test]
fn a_writer_learns_from_write_that_the_room_is_full_and_what_it_wrote_is_there() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = nearly_full(&disk, 300) else {
        return;
    };
    let left = available(&mount);
    let mut file = File::create(mount.path("fill")).unwrap();
    let written = fill(&mut file);
    file.sync_all().unwrap();
    let len = file.metadata().unwrap().len();
    assert!(
        (left >> 20) - 2 <= written as u64 && len <= left + (64 << 20),
        "{written} MiB, {len} bytes, {left} were left"
    );
    drop(file);
    assert_eq!(available(&mount), 0);
    // New data is refused whichever way it comes; reading goes on.
    is_full(File::create(mount.path("more")));
    let direct = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC)
        .open(mount.path("fill"))
        .unwrap();
    let refused = (0..80).find_map(|i| direct.write_all_at(&piece(0), len + i * MIB as u64).err());
    is_full(refused.map_or(Ok(()), Err));
    drop(direct);
    let before = fs::metadata(mount.path("fill")).unwrap();
    let mount = mount.again();
    let after = fs::metadata(mount.path("fill")).unwrap();
    assert_eq!(
        before.len(),
        after.len(),
        "the size is that of what is stored"
    );
    let mut file = File::open(mount.path("fill")).unwrap();
    let mut got = vec![0; MIB];
    for i in 0..written {
        file.read_exact(&mut got).unwrap();
        assert!(got == piece(i), "MiB {i} of {written}");
    }
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len() as u64 + (written * MIB) as u64, after.len());
    drop(file);
    // Deleting makes space at once.
    fs::remove_file(mount.path("fill")).unwrap();
    let mut file = File::create(mount.path("again")).unwrap();
    for i in 0..200 {
        file.write_all(&piece(i)).unwrap();
    }
    file.sync_all().unwrap();
}

/// The limit on what the kernel holds back was lifted again by [`mount::tune`], and a writer on a room that nothing had been
/// written to filled memory: 1.5 GiB were lost.
#[test]
fn a_fast_writer_on_a_fresh_mount_is_held_up_before_it_outruns_the_space() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = Mount::in_dir(disk.dir(), MountOptions::default()) else {
        return;
    };
    mount::tune(&mount.path(""));
    let left = available(&mount);
    let mut file = File::create(mount.path("fill")).unwrap();
    let written = fill(&mut file) as u64;
    file.sync_all().unwrap();
    let len = file.metadata().unwrap().len();
    assert!(
        (left >> 20) - 10 <= written && len <= left + (64 << 20),
        "{written} MiB, {len} bytes, {left} were left"
    );
    drop(file);
    let mount = mount.again();
    let bytes = fs::read(mount.path("fill")).unwrap();
    for (i, got) in bytes.chunks(MIB).take(written as usize).enumerate() {
        assert!(got == piece(i), "MiB {i}");
    }
}

#[test]
fn many_writers_at_once_fill_the_room_and_each_byte_that_was_accepted_is_there() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = nearly_full(&disk, 200) else {
        return;
    };
    let written: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|t| {
                let path = mount.path(&format!("fill{t}"));
                scope.spawn(move || {
                    let mut file = File::create(path).unwrap();
                    let written = fill(&mut file);
                    file.sync_all().unwrap();
                    written
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let sum: usize = written.iter().sum();
    assert!((190..=264).contains(&sum), "{written:?}");
    let mount = mount.again();
    for (t, written) in written.iter().enumerate() {
        let bytes = fs::read(mount.path(&format!("fill{t}"))).unwrap();
        for (i, got) in bytes.chunks(MIB).take(*written).enumerate() {
            assert!(got == piece(i), "MiB {i} of file {t}");
        }
    }
}

/// `posix_fallocate` promised space that was given to others.
#[test]
fn a_range_that_was_allocated_can_be_written_and_mapped_when_the_rest_is_full() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = nearly_full(&disk, 300) else {
        return;
    };
    let file = File::create_new(mount.path("allocated")).unwrap();
    let left = available(&mount);
    allocate(&file, 0, 100 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().blocks() * 512, 100 << 20);
    assert!(available(&mount) <= left - (100 << 20));
    fill(&mut File::create(mount.path("rest")).unwrap());
    for i in 0..100 {
        file.write_all_at(&piece(i), (i * MIB) as u64).unwrap();
    }
    file.sync_all().unwrap();
    let all = available(&mount);
    assert_eq!(all, 0);
    is_full(allocate(&file, 100 << 20, 100 << 20));
    drop(file);
    let mount = mount.again();
    let bytes = fs::read(mount.path("allocated")).unwrap();
    for (i, got) in bytes.chunks(MIB).enumerate() {
        assert!(got == piece(i), "MiB {i}");
    }
}

#[test]
fn a_full_room_is_overwritten_in_place_through_the_cache_and_past_it() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = nearly_full(&disk, 200) else {
        return;
    };
    let mut old = File::create_new(mount.path("old")).unwrap();
    for i in 0..60 {
        old.write_all(&piece(i)).unwrap();
    }
    old.sync_all().unwrap();
    fill(&mut File::create(mount.path("rest")).unwrap());
    for i in 0..60 {
        old.write_all_at(&piece(i + 1000), (i * MIB) as u64)
            .unwrap();
    }
    old.sync_all().unwrap();
    for i in 0..2000 {
        old.write_all_at(&block(i), (i * 7919 % (60 * 256) * 4096) as u64)
            .unwrap();
    }
    old.sync_all().unwrap();
    let mut expected: Vec<u8> = (0..60).flat_map(|i| piece(i + 1000)).collect();
    for i in 0..2000 {
        let at = i * 7919 % (60 * 256) * 4096;
        expected[at..at + 4096].copy_from_slice(&block(i));
    }
    drop(old);
    let mount = mount.again();
    assert!(fs::read(mount.path("old")).unwrap() == expected);
    fs::rename(mount.path("old"), mount.path("new")).unwrap();
    fs::remove_file(mount.path("rest")).unwrap();
}

/// What goes into a map beyond the space cannot be refused when it is written: `msync` says it.
#[test]
fn a_map_of_holes_in_a_full_room_fails_at_msync_and_nothing_else_is_lost() {
    const LEN: usize = 200 << 20;
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = nearly_full(&disk, 80) else {
        return;
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mount.path("sparse"))
        .unwrap();
    file.set_len(LEN as u64).unwrap();
    let code = format!(
        "import mmap,os,sys\n\
         f=os.open(sys.argv[1],os.O_RDWR)\n\
         m=mmap.mmap(f,{LEN})\n\
         b=os.urandom(1<<20)\n\
         for i in range({LEN}>>20): m[i<<20:(i+1)<<20]=b\n\
         try: m.flush()\n\
         except OSError as e: sys.exit(7)\n"
    );
    let status = std::process::Command::new("python3")
        .args(["-c", &code])
        .arg(mount.path("sparse"))
        .status()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert!(
        status.code() == Some(7) || status.signal() == Some(libc::SIGBUS),
        "{status}"
    );
    drop(file);
    let mount = mount.again();
    fs::remove_file(mount.path("sparse")).unwrap();
}

/// The kernel accepts one call as a whole. What found no space stayed in the file's length, as zeros, until the next mount.
#[test]
fn a_single_write_far_beyond_the_space_is_reported_and_leaves_the_length_of_what_is_stored() {
    const LEN: usize = 300;
    if !forgets_on_request() {
        return;
    }
    let Some(disk) = Disk::new(1024) else { return };
    let Some(mount) = nearly_full(&disk, 80) else {
        return;
    };
    let path = mount.path("one");
    let all: Vec<u8> = (0..LEN).flat_map(piece).collect();
    let mut file = File::create_new(&path).unwrap();
    let written = file.write(&all);
    let synced = file.sync_all();
    assert!(
        written.is_err() || written.is_ok_and(|n| n < all.len()) || synced.is_err(),
        "nobody reported that it did not fit"
    );
    // Open elsewhere for longer than it was being written.
    let reader = File::open(&path).unwrap();
    drop(file);
    let mut first = vec![0; MIB];
    reader.read_exact_at(&mut first, 0).unwrap();
    assert!(first == piece(0));
    drop(reader);

    let len = || fs::metadata(&path).unwrap().len() as usize;
    let limit = Instant::now() + Duration::from_secs(300);
    while len() == all.len() {
        assert!(
            Instant::now() < limit,
            "the length still counts what was lost"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), len());
    // A small piece may have found space after a larger one did not: that leaves a hole. The end of the file is stored.
    let end = (bytes.len() - 1) / 4096 * 4096;
    assert!(bytes[end..] == all[end..bytes.len()], "the end is stored");
    let same = |i: &usize| bytes[i * MIB..].starts_with(&all[i * MIB..(i + 1) * MIB]);
    let stored = (0..bytes.len() / MIB).filter(same).count();
    assert!(stored >= 80, "{stored} MiB are stored");
    let mount = mount.again();
    assert_eq!(fs::read(mount.path("one")).unwrap().len(), bytes.len());
}

/// Whether the kernel forgets a file when it is asked to: since Linux 6.18.
fn forgets_on_request() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().unwrap_or(0));
    let version = [(); 2].map(|()| numbers.next().unwrap_or(0_u32));
    if version < [6, 18] {
        eprintln!(
            "skipped: Linux {} cannot be asked to forget a file",
            release.trim()
        );
    }
    version >= [6, 18]
}
