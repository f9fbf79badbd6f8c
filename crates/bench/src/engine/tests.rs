use std::sync::atomic::AtomicU64;

use super::*;
use crate::clock::SystemClock;
use crate::data::{BLOCK, Content, Data};
use crate::store::Object;

/// A file without a descriptor: what threads are for.
struct Memory(Mutex<Vec<u8>>);

impl Object for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.lock();
        let from = bytes
            .get(offset as usize..offset as usize + buf.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        Ok(())
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.lock()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

const BLOCKS: u64 = 64;

fn offsets() -> Vec<u64> {
    // Every block once, in an order that is not theirs: 37 has no factor in common with 64.
    (0..BLOCKS)
        .map(|i| (i * 37 % BLOCKS) * BLOCK as u64)
        .collect()
}

fn job<'a>(
    object: &'a dyn Object,
    offsets: &'a [u64],
    depth: u32,
    stop: &'a AtomicBool,
) -> Job<'a> {
    Job {
        object,
        write: false,
        offsets,
        block: BLOCK,
        depth,
        limit_ns: 60_000_000_000,
        clock: &SystemClock,
        stop,
    }
}

fn write_then_read(object: &dyn Object, depth: u32) -> Engine {
    let (offsets, stop) = (offsets(), AtomicBool::new(false));
    let data = Data::new(5, 0, Content::Unique);
    let mut arena = Arena::default();
    let len = BLOCK * BLOCKS as usize;
    let blocks = arena.get(len);
    for (offset, block) in offsets.iter().zip(blocks.chunks_mut(BLOCK)) {
        data.fill(*offset, block, |_| 1);
    }
    let reading = job(object, &offsets, depth, &stop);
    let writing = Job {
        write: true,
        ..reading
    };
    let wrote = run(&writing, SystemClock.raw_ns(), blocks).unwrap();
    assert_eq!(wrote.done as u64, BLOCKS);
    assert_eq!(wrote.recorder.latency.len(), BLOCKS);
    let blocks = arena.poisoned(len);
    let read = run(&reading, SystemClock.raw_ns(), blocks).unwrap();
    assert_eq!(read.recorder.bytes, len as u64);
    for (offset, block) in offsets.iter().zip(blocks.chunks(BLOCK)) {
        assert_eq!(data.check(*offset, block, |_| 1), Ok(()));
    }
    read.engine
}

fn file(dir: &tempfile::TempDir, mode: crate::store::Mode) -> std::sync::Arc<dyn Object> {
    let path = dir.path().join("file");
    let file = crate::store::host_file(&path, mode).unwrap();
    file.write_at(&vec![0; BLOCK * BLOCKS as usize][..], 0)
        .unwrap();
    file
}

#[test]
fn every_engine_reads_what_it_wrote_each_block_in_its_place() {
    let memory = Memory(Mutex::new(vec![0; BLOCK * BLOCKS as usize]));
    assert_eq!(write_then_read(&memory, 1), Engine::Calls);
    assert_eq!(write_then_read(&memory, 8), Engine::Threads);
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir, crate::store::Mode::Make);
    assert_eq!(write_then_read(&*file, 1), Engine::Calls);
    let wanted = match ring::Ring::new(8) {
        Some(_) => Engine::Ring,
        None => Engine::Threads,
    };
    assert_eq!(write_then_read(&*file, 8), wanted);
}

#[test]
fn a_call_past_the_end_fails_in_every_engine_and_none_hangs() {
    let stop = AtomicBool::new(false);
    let beyond: Vec<u64> = (60..60 + BLOCKS).map(|i| i * BLOCK as u64).collect();
    let memory = Memory(Mutex::new(vec![0; BLOCK * BLOCKS as usize]));
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir, crate::store::Mode::Make);
    let mut arena = Arena::default();
    for depth in [1, 8] {
        for object in [&memory as &dyn Object, &*file] {
            let blocks = arena.get(BLOCK * BLOCKS as usize);
            run(
                &job(object, &beyond, depth, &stop),
                SystemClock.raw_ns(),
                blocks,
            )
            .unwrap_err();
        }
    }
}

/// Goes on by a millisecond each time it is read.
#[derive(Default)]
struct Steps(AtomicU64);

impl Clock for Steps {
    fn read(&self) -> crate::clock::Reading {
        crate::clock::Reading {
            raw_ns: self.0.fetch_add(1_000_000, Ordering::Relaxed),
            ..Default::default()
        }
    }
}

#[test]
fn no_call_begins_after_the_time_is_over_or_after_a_stop() {
    let memory = Memory(Mutex::new(vec![0; BLOCK * BLOCKS as usize]));
    let (offsets, stop) = (offsets(), AtomicBool::new(false));
    let clock = Steps::default();
    let mut arena = Arena::default();
    let limited = Job {
        limit_ns: 10_000_000,
        clock: &clock,
        ..job(&memory, &offsets, 1, &stop)
    };
    let blocks = arena.get(BLOCK * BLOCKS as usize);
    let done = run(&limited, 0, blocks).unwrap();
    assert_eq!(done.done, 10);
    assert_eq!(done.recorder.whole_slices(10_000_000).0.len(), 10);
    stop.store(true, Ordering::Relaxed);
    for depth in [1, 8] {
        let job = job(&memory, &offsets, depth, &stop);
        assert_eq!(run(&job, SystemClock.raw_ns(), blocks).unwrap().done, 0);
    }
}
