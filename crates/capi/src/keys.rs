//! Keys: what opens a room, and its slots.

use std::ffi::c_char;

use embed::SlotKind;

use crate::arguments::{key, options, session, text};
use crate::error::{call, count};
use crate::types::{field, strongroom_key, strongroom_options, strongroom_room, strongroom_slot};

/// Adds a key. `options`: for the cost of a passphrase, NULL for what is usual. `label`: a word for people, or NULL. `slot`: where the
/// slot's number goes, or NULL. Durable when it returns. `BUSY`: not within a transaction.
///
/// Thread safety: any thread.
///
/// # Safety
/// Each pointer is NULL or points to what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_key_add(
    room: strongroom_room,
    key: *const strongroom_key,
    options: *const strongroom_options,
    label: *const c_char,
    slot: *mut u32,
) -> i32 {
    call(|| {
        let session = session(room)?;
        // SAFETY: the caller's promise, as for all of these.
        let (key, (_, cost, _)) = unsafe { (self::key(key)?, self::options(options)?) };
        let label = match label.is_null() {
            true => "",
            // SAFETY: the same.
            false => unsafe { text(label, "the label") }?,
        };
        let id = session.add_key(key, cost, label)?;
        // SAFETY: the same.
        unsafe { foreign::put(slot, id) };
        Ok(())
    })
}

/// Puts another key in a slot; the one that was there opens the room no more. The rest as for `strongroom_key_add`.
///
/// Thread safety: any thread.
///
/// # Safety
/// Each pointer is NULL or points to what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_key_change(
    room: strongroom_room,
    slot: u32,
    key: *const strongroom_key,
    options: *const strongroom_options,
) -> i32 {
    call(|| {
        let session = session(room)?;
        // SAFETY: the caller's promise.
        let (key, (_, cost, _)) = unsafe { (self::key(key)?, self::options(options)?) };
        session.change_key(slot, key, cost)
    })
}

/// Removes the key in a slot. The last one stays: `INVALID_ARGUMENT`.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_key_remove(room: strongroom_room, slot: u32) -> i32 {
    call(|| session(room)?.remove_key(slot))
}

/// The key slots: puts up to `max` of them into `slots`, and returns how many there are; at most 32.
///
/// Thread safety: any thread.
///
/// # Safety
/// `slots` points to room for `max` of them; NULL where `max` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_key_list(
    room: strongroom_room,
    slots: *mut strongroom_slot,
    max: usize,
) -> i64 {
    count(|| {
        if max > 0 {
            foreign::out(slots, "slots")?;
        }
        let all = session(room)?.slots()?;
        for (i, slot) in all.iter().take(max).enumerate() {
            let kind = match slot.kind {
                SlotKind::Passphrase => 1,
                SlotKind::KeyFile => 2,
                SlotKind::RawKey => 3,
                SlotKind::Recipients => 4,
                SlotKind::PassphraseAndKeyFile => 5,
            };
            let slot = strongroom_slot {
                id: slot.id,
                kind,
                created: slot.created_unix_s,
                label: field(slot.label.as_bytes()),
            };
            // SAFETY: the caller's promise; `i` is below `max`.
            unsafe { foreign::put(slots.add(i), slot) };
        }
        Ok(all.len() as u64)
    })
}
