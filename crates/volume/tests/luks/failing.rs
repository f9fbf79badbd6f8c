//! A device that fails once, at any write or flush: what was begun goes on, and nothing is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{AroundMemory, Device, MemoryDevice};
use volume::luks::{Limits, LuksError};

use crate::common::*;
use crate::reencrypt::{begin, cheaply, go_on, volume};

/// Memory of which one write or flush fails; of a write that fails half is done.
#[derive(Debug)]
struct FailsOnce {
    memory: MemoryDevice,
    /// Calls until then.
    left: AtomicUsize,
}

impl FailsOnce {
    fn is_now(&self) -> bool {
        self.left.fetch_sub(1, Ordering::SeqCst) == 0
    }
}

impl AroundMemory for FailsOnce {
    fn memory(&self) -> &MemoryDevice {
        &self.memory
    }

    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.is_now() {
            self.memory.write_at(&buf[..buf.len() / 2], offset)?;
            return Err(io::Error::other("a write fails"));
        }
        self.memory.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        match self.is_now() {
            true => Err(io::Error::other("a flush fails")),
            false => Ok(()),
        }
    }
}

/// Memory with this content of which the call behind so many others fails.
fn failing_after(image: &[u8], calls: usize) -> Arc<FailsOnce> {
    let memory = MemoryDevice::new(image.len());
    memory.write_at(image, 0).unwrap();
    Arc::new(FailsOnce {
        memory,
        left: AtomicUsize::new(calls),
    })
}

/// What failed: nobody said that there was a slot more, which the next change of the key would not have touched.
#[test]
fn a_change_of_a_key_that_fails_says_where_it_leaves_both_slots() {
    for options in [cheap(), cheap_luks1()] {
        let (device, luks) = small(&options);
        let (key, _) = luks.unlock(PASS, &Limits::default()).unwrap();
        let image = all(&*device);
        let mut halves = 0;
        for calls in 0.. {
            let failing = failing_after(&image, calls);
            let changed =
                read(&(failing.clone() as Arc<dyn Device>)).change_key(&key, 0, b"new", &PBKDF2);
            let now = read(&(failing.clone() as Arc<dyn Device>));
            let slots: Vec<u8> = now.dump().keyslots.iter().map(|slot| slot.id).collect();
            match changed {
                Ok(_) => break,
                Err(LuksError::HalfChanged { old, new, .. }) => {
                    assert_eq!(slots, [old, new], "{calls}");
                    let mut now = now;
                    now.remove_key(old).unwrap();
                    assert_eq!(now.unlock(b"new", &Limits::default()).unwrap().1, new);
                    halves += 1;
                }
                Err(_) => assert_eq!(slots.len(), 1, "{calls}"),
            }
        }
        assert!(halves > 1, "{halves}");
    }
}

#[test]
fn a_reencryption_goes_on_after_any_one_failure_also_without_reading_the_header_again() {
    let (device, plain) = volume();
    let image = all(&*device);
    let mut failures = 0;
    for again in [false, true] {
        for left in 0.. {
            let failing = failing_after(&image, left);
            let device: Arc<dyn Device> = failing.clone();
            let mut luks = match begin(&device, &cheaply()) {
                Ok(luks) => luks,
                Err(_) => {
                    // Begun or not; where it was not, it is begun now.
                    let mut luks = read(&device);
                    if !luks.is_reencrypting() {
                        luks = begin(&device, &cheaply()).unwrap();
                    }
                    luks
                }
            };
            let failed = go_on(&mut luks, usize::MAX).is_err();
            if failed {
                if again {
                    luks = read(&device);
                }
                // Where only the end was left, it may be the end already.
                if luks.is_reencrypting() {
                    assert!(go_on(&mut luks, usize::MAX).unwrap(), "{left}");
                }
            }
            assert!(all(&contents(&device, None, PASS)) == plain, "{left}");
            let luks = read(&device);
            assert!(!luks.is_reencrypting(), "{left}");
            assert!(luks.unlock(PASS, &Limits::default()).is_ok());
            if failing.left.load(Ordering::SeqCst) < usize::MAX / 2 {
                // Nothing failed any more.
                break;
            }
            failures += 1;
        }
    }
    assert!(failures > 60, "{failures}");
}
