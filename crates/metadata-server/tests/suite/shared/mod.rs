//! Shared storage from end to end: disks, metadata server, clients, real mounts.
mod answers;
mod common;
mod directories;
mod failures;
mod locks;
mod rates;
mod rights;
mod space;

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use common::{Shared, assert_same, noise};

#[test]
fn what_one_client_closed_the_other_sees() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    for round in 0..10_u64 {
        let bytes = noise(round, 1000 + 3777 * round as usize);
        std::fs::write(a.path("f"), &bytes).unwrap();
        assert_same(&std::fs::read(b.path("f")).unwrap(), &bytes);
        // Same length, other bytes, the other way round.
        let bytes = noise(round + 100, bytes.len());
        std::fs::write(b.path("f"), &bytes).unwrap();
        assert_same(&std::fs::read(a.path("f")).unwrap(), &bytes);
    }
    b.ok("echo appended >> f; truncate -s 5000 f; printf X | dd of=f bs=1 seek=4999 conv=notrunc 2>&1");
    let bytes = std::fs::read(a.path("f")).unwrap();
    assert_eq!((bytes.len(), bytes[4999]), (5000, b'X'));
    assert_same(&bytes[..4999], &noise(109, 5000)[..4999]);
    a.ok("truncate -s 20000 f");
    let bytes = std::fs::read(b.path("f")).unwrap();
    assert!(bytes.len() == 20000 && bytes[5000..].iter().all(|b| *b == 0));
    a.ok("mkdir -p d/e; mv f d/e/g; ln d/e/g d/h; ln -s e/g d/s");
    assert_eq!(
        b.ok("ls d d/e; readlink d/s; stat -c %h d/h"),
        "d:\ne\nh\ns\n\nd/e:\ng\ne/g\n2\n"
    );
    assert!(!b.path("f").exists());
    b.ok("rm d/h d/s");
    assert_eq!(a.ok("ls d; stat -c %h d/e/g"), "e\n1\n");
    a.ok("setfattr -n user.color -v blue d/e/g; setfacl -m u:1234:rw d/e/g");
    assert_eq!(b.ok("getfattr --only-values -n user.color d/e/g"), "blue");
    assert!(b.ok("getfacl -c d/e/g").contains("user:1234:rw-"));
    b.ok("setfattr -x user.color d/e/g; setfacl -b d/e/g; chmod 640 d/e/g; touch -d 2001-02-03 d/e/g");
    assert_eq!(
        a.ok("getfattr d/e/g; stat -c '%a %y' d/e/g | cut -c1-14"),
        "640 2001-02-03\n"
    );
}

#[test]
fn a_file_unlinked_while_it_is_open_stays_until_it_is_closed() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(1, 300_000);
    std::fs::write(a.path("f"), &bytes).unwrap();
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(a.path("f"))
        .unwrap();
    std::fs::remove_file(b.path("f")).unwrap();
    assert!(!a.path("f").exists());
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    file.write_all(b"more").unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(300_000)).unwrap();
    read.clear();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, b"more");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn an_open_shows_what_was_closed_before_also_of_a_file_that_is_open_already() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    std::fs::write(a.path("f"), noise(0, 100_000)).unwrap();
    let _open = std::fs::File::open(b.path("f")).unwrap();
    for round in 1..20 {
        assert_same(
            &std::fs::read(b.path("f")).unwrap(),
            &noise(round - 1, 100_000),
        );
        // Without cutting it off first: that would have its maps revoked.
        let file = std::fs::File::options().write(true).open(a.path("f"));
        file.unwrap()
            .write_all_at(&noise(round, 100_000), 0)
            .unwrap();
    }
}

/// It was written to the end that the kernel knew: over what the other client had added.
#[test]
fn what_is_added_to_a_file_comes_after_what_another_client_added_since_it_was_opened() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    std::fs::write(a.path("log"), "first\n").unwrap();
    let open = |path| std::fs::File::options().append(true).open(path).unwrap();
    let mut one = open(a.path("log"));
    open(b.path("log")).write_all(b"second\n").unwrap();
    one.write_all(b"third\n").unwrap();
    one.write_all(b"fourth\n").unwrap();
    drop(one);
    for mount in [&a, &b] {
        let found = std::fs::read_to_string(mount.path("log")).unwrap();
        assert_eq!(found, "first\nsecond\nthird\nfourth\n");
    }
}

#[test]
fn a_large_file_arrives_whole_however_it_is_written() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(5, 50 << 20);
    std::fs::write(a.path("whole"), &bytes).unwrap();
    assert_same(&std::fs::read(b.path("whole")).unwrap(), &bytes);
    // Odd pieces, back and forth.
    let file = std::fs::File::create(a.path("pieces")).unwrap();
    let bytes = &bytes[..7_777_777];
    let piece = 33_333;
    for at in (0..bytes.len()).step_by(2 * piece).rev() {
        let end = bytes.len().min(at + piece);
        file.write_all_at(&bytes[at..end], at as u64).unwrap();
    }
    for at in (piece..bytes.len()).step_by(2 * piece) {
        let end = bytes.len().min(at + piece);
        file.write_all_at(&bytes[at..end], at as u64).unwrap();
    }
    // Before it is closed, and after.
    assert_same(&std::fs::read(a.path("pieces")).unwrap(), bytes);
    drop(file);
    assert_same(&std::fs::read(b.path("pieces")).unwrap(), bytes);
    assert_same(&std::fs::read(a.path("pieces")).unwrap(), bytes);
    // Overwritten in the middle of blocks by the other.
    let file = std::fs::File::options()
        .write(true)
        .open(b.path("pieces"))
        .unwrap();
    file.write_all_at(b"over the border", 4096 * 3 - 7).unwrap();
    drop(file);
    let mut expected = bytes.to_vec();
    expected[4096 * 3 - 7..4096 * 3 + 8].copy_from_slice(b"over the border");
    assert_same(&std::fs::read(a.path("pieces")).unwrap(), &expected);
}

#[test]
fn holes_copies_and_allocation_are_the_rooms() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    let bytes = noise(9, 1 << 20);
    let mut file = std::fs::File::create(a.path("f")).unwrap();
    file.write_all(&bytes).unwrap();
    rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
        8192,
        4096,
    )
    .unwrap();
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert_eq!(hole, 8192);
    drop(file);
    let mut expected = bytes;
    expected[8192..12288].fill(0);
    assert_same(&std::fs::read(b.path("f")).unwrap(), &expected);
    std::fs::copy(b.path("f"), b.path("g")).unwrap();
    assert_same(&std::fs::read(a.path("g")).unwrap(), &expected);
}

#[test]
fn what_is_mapped_and_changed_arrives() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    std::fs::write(a.path("f"), noise(3, 100_000)).unwrap();
    let script = "import mmap,sys\n\
        f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0)\n\
        m[50000:50005]=b'hello'; m.close(); f.close()\n";
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(a.path("f"))
        .status()
        .unwrap();
    assert!(status.success());
    crate::common::until("a mapped change", || {
        std::fs::read(b.path("f")).unwrap()[50000..50005] == *b"hello"
    });
}

#[test]
fn many_small_files_and_a_tree_are_the_same_on_both_sides() {
    let shared = Shared::new();
    let Some([a, b]) = shared.two() else { return };
    a.ok("for d in 1 2 3 4 5; do mkdir d$d; for f in 1 2 3 4 5 6 7 8 9; do echo $d $f > d$d/f$f; done; done");
    let list = "find . -type f -exec md5sum {} + | sort";
    assert_eq!(a.ok(list), b.ok(list));
    b.ok("tar cf all.tar d1 d2 d3 d4 d5; rm -r d1 d2; mkdir x; tar xf all.tar -C x");
    assert_eq!(a.ok(list), b.ok(list));
    assert_eq!(a.ok("find . -type f | wc -l").trim(), "73");
}

/// Mounts two clients under the directory it says, until the file `stop` appears there: for other suites, by hand.
#[test]
#[ignore = "waits for a person"]
fn two_mounts_to_try_things_on() {
    let shared = Shared::new();
    let Some([_a, _b]) = shared.two() else { return };
    println!("{}", shared.dir.path().display());
    while !shared.dir.path().join("stop").exists() {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
