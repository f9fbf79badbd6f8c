//! Two copies of one memory, as `fork`, CRIU and a virtual machine that is resumed twice make them: both know the key of the
//! open segment and its next position, and each writes other data there. Anyone who sees both disks must learn nothing by
//! that. Until appends drew a part of their nonces, the difference of what was stored was the difference of the data.
#![allow(missing_docs, unsafe_code)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use seal::{MasterKey, RoomId, Suite};
use segments::{
    BLOCK_LEN, BlockRange, DirStore, Keyring, NoncePart, Sealed, SegmentNo, name_in_dir,
};
use storage::HostStorage;
use strongroom_segments as segments;

const BLOCKS: usize = 9;

fn open(dir: &Path, suite: Suite, append_nonces: bool) -> DirStore {
    let room = RoomId::from_bytes([3; 16]);
    let master = MasterKey::from_bytes(&[1; 32]);
    let (data, header) = (master.data_key(&room), master.segment_header_key(&room));
    let keyring = Keyring::new(suite, room, 1, data, header).with_append_nonces(append_nonces);
    let storage = Arc::new(HostStorage::open(dir).unwrap());
    DirStore::open(storage, keyring, Vec::new(), SegmentNo(1)).unwrap()
}

/// What one of the copies appended, and what it left on its disk.
struct Copy {
    sealed: Sealed,
    plain: Vec<u8>,
    stored: Vec<u8>,
}

fn append(store: &DirStore, dir: &Path, byte: u8) -> Copy {
    let plain = vec![byte; BLOCKS * BLOCK_LEN];
    let sealed = store.append(&plain).unwrap();
    let path = dir.join("segments").join(name_in_dir(sealed.segment));
    let mut stored = vec![0; plain.len()];
    let at = u64::from(sealed.position) * BLOCK_LEN as u64;
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut stored, at).unwrap();
    let mut back = vec![0; plain.len()];
    let range = BlockRange {
        segment: sealed.segment,
        position: sealed.position,
        blocks: sealed.blocks,
    };
    let read = store.read(range, sealed.proofs(), &mut back);
    read.unwrap();
    assert!(back == plain);
    Copy {
        sealed,
        plain,
        stored,
    }
}

/// Forks with a segment open, and lets both processes append.
fn two_copies(suite: Suite, append_nonces: bool) -> [Copy; 2] {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), suite, append_nonces);
    store.append(&[7; BLOCK_LEN]).unwrap();
    let note = dir.path().join("what the child did");
    // SAFETY: the child calls nothing that waits for a thread of this process, and ends without running its handlers.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let work = std::panic::AssertUnwindSafe(|| {
            let copy = append(&store, dir.path(), 0xc1);
            let (no, at) = (copy.sealed.segment.0, copy.sealed.position);
            let head = [
                &no.to_le_bytes()[..],
                &at.to_le_bytes(),
                &copy.sealed.nonce.0,
            ]
            .concat();
            std::fs::write(&note, [head, copy.stored].concat()).unwrap();
        });
        let done = std::panic::catch_unwind(work);
        // SAFETY: it ends this process, whose memory nobody needs.
        unsafe { libc::_exit(i32::from(done.is_err())) }
    }
    let mut status = 0;
    // SAFETY: the status has a place, and the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    let noted = std::fs::read(&note).unwrap();
    let ours = append(&store, dir.path(), 0x0a);
    let (head, stored) = noted.split_at(16);
    let theirs = Copy {
        sealed: Sealed {
            segment: SegmentNo(u64::from_le_bytes(head[..8].try_into().unwrap())),
            position: u32::from_le_bytes(head[8..12].try_into().unwrap()),
            nonce: NoncePart(head[12..].try_into().unwrap()),
            blocks: BLOCKS as u32,
            tags: segments::Tags::new(),
            digests: Vec::new(),
        },
        plain: vec![0xc1; BLOCKS * BLOCK_LEN],
        stored: stored.to_vec(),
    };
    [ours, theirs]
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

#[test]
fn two_copies_of_one_memory_use_no_nonce_for_two_plaintexts() {
    for suite in Suite::ALL {
        for append_nonces in [true, false] {
            let [ours, theirs] = two_copies(suite, append_nonces);
            // The same key, and the same position.
            assert_eq!(ours.sealed.segment, theirs.sealed.segment);
            assert_eq!(ours.sealed.position, theirs.sealed.position);
            let plain = xor(&ours.plain, &theirs.plain);
            let stored = xor(&ours.stored, &theirs.stored);
            if !append_nonces {
                // What rooms without the feature are exposed to, and that this test would see it.
                assert!(stored == plain);
                continue;
            }
            assert_ne!(ours.sealed.nonce, theirs.sealed.nonce);
            let blocks = stored.chunks(BLOCK_LEN).zip(plain.chunks(BLOCK_LEN));
            for (stored, plain) in blocks {
                let alike = stored.iter().zip(plain).filter(|(a, b)| a == b).count();
                // One byte in 256 by chance.
                assert!(alike < BLOCK_LEN / 16, "{alike} bytes of a block show");
            }
        }
    }
}

#[test]
fn each_append_of_a_store_draws_its_own_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), Suite::Aes256Gcm, true);
    let parts: std::collections::HashSet<_> = (0..64)
        .map(|byte| append(&store, dir.path(), byte).sealed.nonce)
        .collect();
    // Two of 64 are alike once in two million runs.
    assert!(parts.len() >= 63, "{parts:?}");
}
