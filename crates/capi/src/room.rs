//! Rooms: made, opened, closed, made durable; transactions.

use std::ffi::c_char;
use std::ptr;

use embed::{Kind, OpenOptions, Session, Suite};

use crate::arguments::{directory, key, options, session};
use crate::error::{call, count};
use crate::types::{
    strongroom_info, strongroom_key, strongroom_options, strongroom_room, strongroom_space,
};

fn close_all() {
    for session in foreign::all::<Session>() {
        // There is no caller left to report to.
        if matches!(session.close(), Err(e) if e.kind() == Kind::Busy) {
            let _ = session.abandon();
        }
    }
}

fn opened(session: Session) -> strongroom_room {
    foreign::at_exit(close_all);
    foreign::insert(session)
}

/// Fills in what is usual: changes allowed, a commit every 5 seconds, costs measured, the faster suite.
/// `options`: room for them; NULL is an error.
///
/// Thread safety: any thread.
///
/// # Safety
/// `options` is NULL or points to room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_options_init(options: *mut strongroom_options) -> i32 {
    call(|| {
        let to = foreign::out(options, "options")?;
        let usual = OpenOptions::default();
        let init = strongroom_options {
            size: size_of::<strongroom_options>(),
            read_only: 0,
            accept_rollback: 0,
            commit_interval_ms: usual.commit_interval_ms,
            state_dir: ptr::null(),
            argon2_memory_kib: 0,
            argon2_passes: 0,
            argon2_lanes: 0,
            suite: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, init) };
        Ok(())
    })
}

/// Creates a room in the directory `dir`, which must not exist or be empty, and opens it. `key` will open it. `options`: NULL for what is
/// usual. `room`: where the handle goes; 0 on failure.
///
/// `EXISTS`: the directory holds something. `INVALID_ARGUMENT`: an empty passphrase, a raw key that has not 32 bytes.
///
/// Thread safety: any thread.
///
/// # Safety
/// Each pointer is NULL or points to what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_create(
    dir: *const c_char,
    key: *const strongroom_key,
    options: *const strongroom_options,
    room: *mut strongroom_room,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(room, 0) };
    call(|| {
        let to = foreign::out(room, "room")?;
        // SAFETY: the caller's promise, as for all of these.
        let (dir, key) = unsafe { (directory(dir, "dir")?, self::key(key)?) };
        // SAFETY: the same.
        let (open, cost, suite) = unsafe { self::options(options) }?;
        let session = Session::create_with(dir, key, cost, open, suite)?;
        // SAFETY: the same.
        unsafe { foreign::put(to, opened(session)) };
        Ok(())
    })
}

/// Opens the room in the directory `dir`. The rest as for `strongroom_create`.
///
/// `WRONG_KEY`, `NOT_A_ROOM`, `BUSY` (another process has it, or this one, by another handle), `ROLLED_BACK`, `CORRUPT`.
///
/// Thread safety: any thread.
///
/// # Safety
/// Each pointer is NULL or points to what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_open(
    dir: *const c_char,
    key: *const strongroom_key,
    options: *const strongroom_options,
    room: *mut strongroom_room,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { foreign::put(room, 0) };
    call(|| {
        let to = foreign::out(room, "room")?;
        // SAFETY: the caller's promise, as for all of these.
        let (dir, key) = unsafe { (directory(dir, "dir")?, self::key(key)?) };
        // SAFETY: the same.
        let (open, _, _) = unsafe { self::options(options) }?;
        let session = Session::open(dir, key, open)?;
        // SAFETY: the same.
        unsafe { foreign::put(to, opened(session)) };
        Ok(())
    })
}

/// Waits for the calls that other threads are in, makes everything durable, and closes. Files and listings that are open stay so:
/// listings can be read on, and every call on a file but closing is `CLOSED`. `BUSY`: a transaction is open; the room stays open: complete it, or abandon the room.
/// After any other error the handle is closed nevertheless.
///
/// Thread safety: any thread; of two that close the same room one gets `CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_close(room: strongroom_room) -> i32 {
    call(|| {
        let session = session(room)?;
        let closed = session.close();
        if !matches!(&closed, Err(e) if e.kind() == Kind::Busy) {
            foreign::remove::<Session>(room, "room handle")?;
        }
        closed
    })
}

/// Closes as `strongroom_close` does, but for a transaction that is open: of that nothing is left.
///
/// Thread safety: any thread; of two that close the same room one gets `CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_abandon(room: strongroom_room) -> i32 {
    call(|| foreign::remove::<Session>(room, "room handle")?.abandon())
}

/// Makes everything done so far durable. Within a transaction its completion does that, and this does nothing.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_sync(room: strongroom_room) -> i32 {
    call(|| session(room)?.sync())
}

/// Facts about the room.
///
/// Thread safety: any thread.
///
/// # Safety
/// `info` is NULL or points to room for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_get_info(
    room: strongroom_room,
    info: *mut strongroom_info,
) -> i32 {
    call(|| {
        let to = foreign::out(info, "info")?;
        let session = session(room)?;
        let facts = session.info()?;
        let info = strongroom_info {
            id: *facts.id.as_bytes(),
            generation: facts.generation,
            created: facts.created,
            segments: facts.segments,
            format: facts.format,
            suite: match facts.suite {
                Suite::Aes256Gcm => 1,
                Suite::ChaCha20Poly1305 => 2,
            },
            key_epoch: facts.key_epoch,
            slots: facts.slots as u32,
            read_only: session.is_read_only()?.into(),
        };
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, info) };
        Ok(())
    })
}

/// Space of the room, and of what holds it.
///
/// Thread safety: any thread.
///
/// # Safety
/// `space` is NULL or points to room for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongroom_get_space(
    room: strongroom_room,
    space: *mut strongroom_space,
) -> i32 {
    call(|| {
        let to = foreign::out(space, "space")?;
        let found = session(room)?.space()?;
        // SAFETY: the caller's promise.
        unsafe { foreign::put(to, found.into()) };
        Ok(())
    })
}

/// Begins a transaction: what any thread does to the room from now on becomes durable as a whole when `strongroom_complete` returns, and
/// after a crash before that none of it is there. They nest by count; the outermost counts. There is no way back but
/// `strongroom_abandon`.
///
/// Thread safety: any thread; a transaction is the room's, and keeps no other thread out.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_begin(room: strongroom_room) -> i32 {
    call(|| session(room)?.begin())
}

/// Completes a transaction. `NO_SPACE`: it is still open; delete something, and complete it again. `INVALID_ARGUMENT`: there is none.
///
/// Thread safety: any thread, also another one than the one that began.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_complete(room: strongroom_room) -> i32 {
    call(|| session(room)?.complete())
}

/// 1 if a transaction is open, else 0.
///
/// Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn strongroom_in_transaction(room: strongroom_room) -> i64 {
    count(|| Ok(session(room)?.in_transaction()?.into()))
}
