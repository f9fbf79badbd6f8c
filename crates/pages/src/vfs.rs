//! The table of functions that SQLite calls: <https://sqlite.org/vfs.html>.
//!
//! 1. SQLite calls a file's functions one at a time, between a successful `xOpen` and one `xClose`.
//! 2. No panic crosses into C: it becomes an error of the operation.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::ffi;
use storage::{OpenMode, Storage, parent};

use crate::file::{PageFile, Plain, Unnamed};
use crate::registered::{Part, resolve, vouched};

/// Longest path, with the NUL.
const PATH_MAX: c_int = 512;
/// Days from the beginning of the Julian calendar's count to 1970, in milliseconds.
const JULIAN_1970_MS: i64 = 210_866_760_000_000;

static NAME: &CStr = c"strongroom";

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
    static NOT_OPENED: Cell<Option<io::Error>> = const { Cell::new(None) };
}

/// How often SQLite has read from a file in calls of this thread.
pub fn reads() -> u64 {
    READS.get()
}

/// Why the storage refused to open the last file that SQLite could not open in calls of this thread: SQLite itself says only that.
pub fn not_opened() -> Option<io::Error> {
    NOT_OPENED.take()
}

/// What SQLite allocates for each open file.
#[repr(C)]
struct Open {
    base: ffi::sqlite3_file,
    /// From `Box::into_raw`; null after closing.
    file: *mut File,
}

struct File {
    inner: Box<dyn PageFile>,
    path: String,
    /// To be removed when it is closed.
    remove: Option<Arc<dyn Storage>>,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Makes this layer known to SQLite, once.
pub(crate) fn register() -> io::Result<()> {
    static DONE: OnceLock<c_int> = OnceLock::new();
    let code = *DONE.get_or_init(|| {
        let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<Open>() as c_int,
            mxPathname: PATH_MAX,
            pNext: null_mut(),
            zName: NAME.as_ptr(),
            pAppData: null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_ms),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the table is never freed, and all functions in it keep what SQLite's documentation asks of them.
        unsafe { ffi::sqlite3_vfs_register(vfs, 0) }
    });
    match code {
        ffi::SQLITE_OK => Ok(()),
        code => Err(io::Error::other(format!(
            "SQLite refuses the storage layer (code {code})"
        ))),
    }
}

/// Runs an operation, and says in SQLite's codes how it went: `failed` where there is none that says more.
fn done(what: &str, path: &str, failed: c_int, run: impl FnOnce() -> io::Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            tracing::debug!("{what} {path}: {error}");
            match error.kind() {
                // Not of a read, which breaks the connection: SQLCipher decrypts what was not read, and refuses all pages from then on.
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded
                    if failed != ffi::SQLITE_IOERR_READ =>
                {
                    ffi::SQLITE_FULL
                }
                ErrorKind::InvalidData => ffi::SQLITE_CORRUPT,
                ErrorKind::OutOfMemory => ffi::SQLITE_NOMEM,
                _ => failed,
            }
        }
        Err(panic) => {
            tracing::error!("{what} {path}: {}", panic_text(&*panic));
            failed
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panicked")
}

/// # Safety
/// `path` is null or a string that outlives the call.
unsafe fn text<'a>(path: *const c_char) -> Option<&'a str> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(path) }.to_str().ok()
}

/// # Safety
/// `file` was opened by [`open`] and is not closed.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a mut File {
    // SAFETY: `open` put a valid pointer there, and SQLite uses a file from one thread at a time.
    unsafe { &mut *(*file.cast::<Open>()).file }
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let slot = file.cast::<Open>();
    // SAFETY: SQLite gives `szOsFile` bytes. Without methods it does not close what could not be opened.
    unsafe { (*slot).base.pMethods = null() };
    let named = !path.is_null();
    // SAFETY: SQLite's file names are strings that live as long as the file is open.
    let path = unsafe { text(path) }.unwrap_or_default();
    done("open", path, ffi::SQLITE_CANTOPEN, || {
        let opened = if named {
            open_named(path, flags)?
        } else {
            File {
                inner: Box::new(Unnamed::default()),
                path: "a file without a name".into(),
                remove: None,
            }
        };
        // SAFETY: as above; `out_flags` is null or points to an integer.
        unsafe {
            (*slot).file = Box::into_raw(Box::new(opened));
            (*slot).base.pMethods = &METHODS;
            if !out_flags.is_null() {
                *out_flags = flags;
            }
        }
        Ok(ffi::SQLITE_OK)
    })
}

fn open_named(path: &str, flags: c_int) -> io::Result<File> {
    NOT_OPENED.set(None);
    let (storage, name) = resolve(path).ok_or(ErrorKind::NotFound)?;
    let has = |flag| flags & flag != 0;
    let create = has(ffi::SQLITE_OPEN_CREATE);
    let mode = if create && has(ffi::SQLITE_OPEN_EXCLUSIVE) {
        OpenMode::CreateNew
    } else if has(ffi::SQLITE_OPEN_READWRITE) {
        OpenMode::ReadWrite
    } else {
        OpenMode::Read
    };
    let part = vouched(path);
    if matches!(&part, Some(Part::Journal(witness)) if !witness.is_making()) {
        // Only a catalog that is being made is written without a log.
        return Err(ErrorKind::PermissionDenied.into());
    }
    let plain = Plain::open(&storage, name, mode, create).inspect_err(|e| {
        NOT_OPENED.set(Some(io::Error::new(e.kind(), format!("{name}: {e}"))));
    })?;
    let plain = Box::new(match has(ffi::SQLITE_OPEN_MAIN_DB) {
        true => plain.reading_around(),
        false => plain,
    });
    Ok(File {
        inner: match part {
            Some(Part::Main(witness)) => Box::new(witness.main(plain)),
            Some(Part::Log(witness)) => Box::new(witness.log(plain)?),
            Some(Part::Journal(_)) | None => plain,
        },
        path: name.to_owned(),
        remove: has(ffi::SQLITE_OPEN_DELETEONCLOSE).then_some(storage),
    })
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let slot = file.cast::<Open>();
    // SAFETY: the pointer is from `Box::into_raw` in `open`, and is taken back once.
    let file = unsafe { Box::from_raw(std::mem::replace(&mut (*slot).file, null_mut())) };
    done("close", &file.path, ffi::SQLITE_IOERR_CLOSE, || {
        if let Some(storage) = &file.remove {
            storage.remove(&file.path)?;
        }
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: an open file.
    let file = unsafe { opened(file) };
    // SAFETY: SQLite gives room for `len` bytes; zeroed, so that it is initialised.
    let buf = unsafe {
        to.cast::<u8>().write_bytes(0, len as usize);
        std::slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)
    };
    READS.set(READS.get().wrapping_add(1));
    done("read", &file.path, ffi::SQLITE_IOERR_READ, || {
        let read = file.inner.read(buf, offset as u64)?;
        // What is behind the end of the file must read as zeros.
        buf[read..].fill(0);
        Ok(if read == buf.len() {
            ffi::SQLITE_OK
        } else {
            ffi::SQLITE_IOERR_SHORT_READ
        })
    })
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: an open file, and `len` bytes to be written.
    let (file, buf) = unsafe {
        (
            opened(file),
            std::slice::from_raw_parts(from.cast::<u8>(), len as usize),
        )
    };
    done("write", &file.path, ffi::SQLITE_IOERR_WRITE, || {
        file.inner.write(buf, offset as u64)?;
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: i64) -> c_int {
    // SAFETY: an open file.
    let file = unsafe { opened(file) };
    done("truncate", &file.path, ffi::SQLITE_IOERR_TRUNCATE, || {
        file.inner.truncate(len as u64)?;
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: an open file.
    let file = unsafe { opened(file) };
    done("sync", &file.path, ffi::SQLITE_IOERR_FSYNC, || {
        file.inner.sync()?;
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, len: *mut i64) -> c_int {
    // SAFETY: an open file.
    let file = unsafe { opened(file) };
    done("length of", &file.path, ffi::SQLITE_IOERR_FSTAT, || {
        let found = i64::try_from(file.inner.len()?).map_err(|_| ErrorKind::FileTooLarge)?;
        // SAFETY: SQLite gives a place for the answer.
        unsafe { *len = found };
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn lock(_file: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(
    _file: *mut ffi::sqlite3_file,
    reserved: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives a place for the answer.
    unsafe { *reserved = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    _file: *mut ffi::sqlite3_file,
    _what: c_int,
    _with: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    // A write that power cuts short changes nothing outside its range.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    sync_dir: c_int,
) -> c_int {
    // SAFETY: a path of SQLite's.
    let path = unsafe { text(path) }.unwrap_or_default();
    done("delete", path, ffi::SQLITE_IOERR_DELETE, || {
        let (storage, name) = resolve(path).ok_or(ErrorKind::NotFound)?;
        if let Some(Part::Log(witness)) = vouched(path) {
            witness.log_ends()?;
        }
        match storage.remove(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(ffi::SQLITE_IOERR_DELETE_NOENT);
            }
            other => other?,
        }
        if sync_dir != 0 {
            storage.sync_dir(parent(name))?;
        }
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn access(
    _vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    what: c_int,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: a path of SQLite's.
    let path = unsafe { text(path) }.unwrap_or_default();
    done("look for", path, ffi::SQLITE_IOERR_ACCESS, || {
        let (storage, name) = resolve(path).ok_or(ErrorKind::NotFound)?;
        if matches!(vouched(path), Some(Part::Journal(witness)) if !witness.is_making()) {
            // SQLite would play back a planted one.
            // SAFETY: SQLite gives a place for the answer.
            unsafe { *answer = 0 };
            return Ok(ffi::SQLITE_OK);
        }
        let mode = match what {
            ffi::SQLITE_ACCESS_READWRITE => OpenMode::ReadWrite,
            _ => OpenMode::Read,
        };
        let there = match storage.open(name, mode) {
            Ok(file) => what != ffi::SQLITE_ACCESS_EXISTS || !file.is_empty()?,
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        // SAFETY: SQLite gives a place for the answer.
        unsafe { *answer = there.into() };
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    len: c_int,
    to: *mut c_char,
) -> c_int {
    // SAFETY: a path of SQLite's, and room for `len` bytes, which the check keeps.
    unsafe {
        let path = CStr::from_ptr(path).to_bytes_with_nul();
        if path.len() > len as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        to.copy_from_nonoverlapping(path.as_ptr().cast(), path.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_vfs: *mut ffi::sqlite3_vfs, len: c_int, to: *mut c_char) -> c_int {
    // SAFETY: SQLite gives room for `len` bytes; zeroed, so that it is initialised.
    let buf = unsafe {
        to.write_bytes(0, len as usize);
        std::slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)
    };
    match getrandom::fill(buf) {
        Ok(()) => len,
        Err(_) => 0,
    }
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(micros.max(0) as u64));
    micros
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    JULIAN_1970_MS + now.unwrap_or_default().as_millis() as i64
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, days: *mut f64) -> c_int {
    // SAFETY: SQLite gives a place for the answer.
    unsafe { *days = now_ms() as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_ms(_vfs: *mut ffi::sqlite3_vfs, ms: *mut i64) -> c_int {
    // SAFETY: SQLite gives a place for the answer.
    unsafe { *ms = now_ms() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(
    _vfs: *mut ffi::sqlite3_vfs,
    _len: c_int,
    _to: *mut c_char,
) -> c_int {
    0
}
