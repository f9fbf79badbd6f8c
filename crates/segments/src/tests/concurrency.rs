//! Many threads at once.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use storage::testing::Op;

use super::*;

#[test]
fn no_position_is_written_twice_and_each_append_reads_back() {
    let memory = MemoryStorage::new();
    let storage = FaultyStorage::new(memory);
    let seen = Mutex::new(HashSet::new());
    storage.observe(move |call| {
        if call.op == Op::Write {
            // Zeros may be written ahead, but not over anything.
            let zeros = call.data.iter().all(|b| *b == 0);
            let mut seen = seen.lock().unwrap();
            for block in call.offset / BLOCK_LEN as u64..(call.offset + call.len) / BLOCK_LEN as u64
            {
                let place = (call.path.to_owned(), block);
                assert!(
                    !seen.contains(&place),
                    "block {block} of {} again",
                    call.path
                );
                if !zeros {
                    seen.insert(place);
                }
            }
        }
    });
    let store = open(&storage, Vec::new());
    let all = Mutex::new(Vec::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8_u8)
            .map(|thread| {
                let (store, all) = (&store, &all);
                scope.spawn(move || {
                    for step in 0..40_usize {
                        let w = append(
                            store,
                            1 + (step * 7 + usize::from(thread)) % 33,
                            thread ^ step as u8,
                        );
                        w.assert_readable(store);
                        if step % 16 == 3 {
                            store.flush().unwrap();
                        }
                        all.lock().unwrap().push(w);
                    }
                })
            })
            .collect();
        let rotating = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.rotate().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        rotating.join().unwrap();
    });
    let all = all.into_inner().unwrap();
    assert_eq!(all.len(), 320);
    all.iter().for_each(|w| w.assert_readable(&store));
    let reported: HashSet<_> = store.take_new().into_iter().map(|id| id.no).collect();
    assert_eq!(
        reported,
        all.iter().map(|w| w.sealed.segment).collect(),
        "each segment used is reported, and no other"
    );
}

#[test]
fn zeros_written_ahead_never_land_on_data() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let store = &bench.store;
            scope.spawn(move || {
                for step in 0..200 {
                    let w = append(store, 1 + usize::from(step) % 3, thread ^ step);
                    store.flush().unwrap();
                    w.assert_readable(store);
                }
            });
        }
    });
}

#[test]
fn what_returned_before_a_flush_in_another_thread_survives_a_power_cut() {
    for _ in 0..20 {
        let bench = Bench::new();
        let durable: Mutex<Vec<Written>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..6_u8 {
                let (store, durable) = (&bench.store, &durable);
                scope.spawn(move || {
                    for step in 0..10 {
                        let w = append(store, 2, thread * 10 + step);
                        if step == 5 {
                            store.rotate().unwrap();
                        }
                        store.flush().unwrap();
                        durable.lock().unwrap().push(w);
                    }
                    append(store, 2, 99);
                });
            }
        });
        let known = bench.store.take_new();
        bench.memory.power_cut();
        let store = open(&bench.faults, known);
        durable
            .into_inner()
            .unwrap()
            .iter()
            .for_each(|w| w.assert_readable(&store));
    }
}

#[test]
fn a_slow_beginning_of_a_segment_stalls_no_reservation() {
    let bench = Bench::new();
    let store = &bench.store;
    // The file is not created before the reservation went through, or after a timeout that only a stall exceeds.
    let (made, gate) = std::sync::mpsc::channel();
    let gate = Mutex::new(Some(gate));
    let stalled = std::sync::Arc::new(AtomicBool::new(false));
    let seen = stalled.clone();
    bench.faults.observe(move |call| {
        let first = || gate.lock().unwrap().take();
        if call.op == Op::Create
            && let Some(gate) = first()
        {
            let timeout = std::time::Duration::from_secs(30);
            let opened = gate.recv_timeout(timeout);
            seen.store(opened.is_err(), Ordering::SeqCst);
        }
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(move || append(store, 1, 1));
        while store.open_segment().is_none() {
            std::thread::yield_now();
        }
        store.reserve(1).unwrap();
        let _ = made.send(());
        first.join().unwrap().assert_readable(store);
        assert!(
            !stalled.load(Ordering::SeqCst),
            "waited for the file to be made"
        );
    });
}
