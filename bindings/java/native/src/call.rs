//! One call from Java: in, guarded, out. The only place that touches memory of Java.
#![allow(unsafe_code)] // Bytes of Java are signed, and direct buffers are pointers.

use embed::{Error, Inode, Kind, Result, guard};
use jni::errors::{Error as JavaError, ThrowRuntimeExAndDefault};
use jni::objects::{JByteArray, JByteBuffer, JLongArray};
use jni::strings::JNIString;
use jni::sys::{jint, jlong, jsize};
use jni::{Env, EnvUnowned, JValue, jni_sig, jni_str};
use parking_lot::Mutex;

/// Longs of one file's attributes; `org.strongroom.Stat` reads them in this order.
const STAT_LEN: usize = 17;
/// Up to this many bytes go over the stack.
pub(crate) const SMALL: usize = 512;
/// Bytes of a buffer between Java and the room: a chunk of a file, so that a large write stays whole extents.
pub(crate) const PIECE: usize = 1 << 20;
/// Buffers kept for the next call. More are made while more threads are at it.
const KEPT: usize = 4;

static BUFFERS: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// Functions of the class `org.strongroom.Native`: of each the environment, what Java passes, and what [`answer`] runs.
macro_rules! native {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($env:pat_param $(, $argument:ident: $type:ty)* $(,)?) $(-> $answer:ty)? $body:block
    )*) => {$(
        $(#[$doc])*
        #[unsafe(export_name = concat!("Java_org_strongroom_Native_", stringify!($name)))]
        extern "system" fn $name<'l>(
            env: jni::EnvUnowned<'l>,
            _: jni::objects::JClass<'l>,
            $($argument: $type),*
        ) $(-> $answer)? {
            $crate::call::answer(env, |$env| $body)
        }
    )*};
}
pub(crate) use native;

/// Runs a call; an error becomes an exception and the answer is nothing.
pub(crate) fn answer<'l, T: Default>(
    mut env: EnvUnowned<'l>,
    call: impl FnOnce(&mut Env<'l>) -> Result<T>,
) -> T {
    env.with_env(|env| match guard(|| call(env)) {
        Ok(value) => Ok(value),
        Err(error) => throw(env, &error).map(|()| T::default()),
    })
    .resolve::<ThrowRuntimeExAndDefault>()
}

/// Java makes the exception: it knows its classes.
fn throw(env: &mut Env<'_>, error: &Error) -> std::result::Result<(), JavaError> {
    if env.exception_check() {
        return Ok(());
    }
    let kind = env.new_string(name(error.kind()))?;
    let text = env.new_string(error.to_string())?;
    let exception = env
        .call_static_method(
            jni_str!("org/strongroom/RoomException"),
            jni_str!("of"),
            jni_sig!("(Ljava/lang/String;ILjava/lang/String;)Lorg/strongroom/RoomException;"),
            &[
                JValue::Object(&kind),
                JValue::Int(error.errno()),
                JValue::Object(&text),
            ],
        )?
        .l()?;
    let exception = env.cast_local::<jni::objects::JThrowable>(exception)?;
    match env.throw(&exception) {
        // That is what throwing looks like from here.
        Err(JavaError::JavaException) | Ok(()) => Ok(()),
        Err(other) => Err(other),
    }
}

/// The constant of `org.strongroom.RoomException.Kind`.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::NotFound => "NOT_FOUND",
        Kind::Exists => "EXISTS",
        Kind::NotDirectory => "NOT_DIRECTORY",
        Kind::IsDirectory => "IS_DIRECTORY",
        Kind::NotEmpty => "NOT_EMPTY",
        Kind::NotPermitted => "NOT_PERMITTED",
        Kind::ReadOnly => "READ_ONLY",
        Kind::InvalidArgument => "INVALID_ARGUMENT",
        Kind::NotSupported => "NOT_SUPPORTED",
        Kind::NoSpace => "NO_SPACE",
        Kind::Corrupt => "CORRUPT",
        Kind::Io => "IO",
        Kind::WrongKey => "WRONG_KEY",
        Kind::NotARoom => "NOT_A_ROOM",
        Kind::Busy => "BUSY",
        Kind::RolledBack => "ROLLED_BACK",
        Kind::Closed => "CLOSED",
        Kind::Internal => "INTERNAL",
    }
}

/// What Java itself refused.
pub(crate) fn java(error: JavaError) -> Error {
    match error {
        JavaError::NullPtr(what) => Error::Argument(format!("null ({what})")),
        other => Error::Internal(other.to_string()),
    }
}

/// All bytes of an array.
pub(crate) fn bytes(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Vec<u8>> {
    env.convert_byte_array(array).map_err(java)
}

/// A new array.
pub(crate) fn array<'l>(env: &mut Env<'l>, bytes: &[u8]) -> Result<JByteArray<'l>> {
    match i32::try_from(bytes.len()) {
        Ok(_) => env.byte_array_from_slice(bytes).map_err(java),
        Err(_) => Err(Error::Argument(
            "an answer of more than 2 GiB does not fit into an array of Java".into(),
        )),
    }
}

/// A new string.
pub(crate) fn text<'l>(env: &mut Env<'l>, text: &str) -> Result<jni::objects::JString<'l>> {
    jni::objects::JString::from_jni_str(env, JNIString::from(text)).map_err(java)
}

/// An offset in a file.
pub(crate) fn offset(offset: jlong) -> Result<u64> {
    u64::try_from(offset)
        .map_err(|_| Error::Argument(format!("an offset in a file of {offset}: below 0")))
}

/// A length of a part of `whole` bytes that begins at `at`.
pub(crate) fn part(whole: usize, at: jint, len: jint) -> Result<(usize, usize)> {
    match (usize::try_from(at), usize::try_from(len)) {
        (Ok(from), Ok(count)) if from <= whole && count <= whole - from => Ok((from, count)),
        _ => Err(Error::Argument(format!(
            "{len} bytes at {at} of a buffer of {whole}"
        ))),
    }
}

/// Copies from an array; the caller looked that it holds so much.
pub(crate) fn copy_in(
    env: &Env<'_>,
    array: &JByteArray<'_>,
    at: usize,
    to: &mut [u8],
) -> Result<()> {
    // SAFETY: u8 and i8 have one layout, and every pattern of bits is a value of both.
    let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<i8>(), to.len()) };
    array.get_region(env, at as jsize, to).map_err(java)
}

/// Copies into an array; the caller looked that it holds so much.
pub(crate) fn copy_out(
    env: &Env<'_>,
    array: &JByteArray<'_>,
    at: usize,
    from: &[u8],
) -> Result<()> {
    // SAFETY: u8 and i8 have one layout, and every pattern of bits is a value of both.
    let from = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<i8>(), from.len()) };
    array.set_region(env, at as jsize, from).map_err(java)
}

/// Runs `call` on a part of a direct buffer.
pub(crate) fn direct<T>(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    at: jint,
    len: jint,
    call: impl FnOnce(&mut [u8]) -> Result<T>,
) -> Result<T> {
    let whole = env.get_direct_buffer_capacity(buffer).map_err(java)?;
    let (at, len) = part(whole, at, len)?;
    if len == 0 {
        // An empty buffer may have no address.
        return call(&mut []);
    }
    let start = env.get_direct_buffer_address(buffer).map_err(java)?;
    // SAFETY: the buffer has `whole` bytes from `start`, the part is within them, and the reference that Java passed keeps
    // them until this call returns. That nobody else touches them meanwhile is asked of callers in Java as of any `read`;
    // other threads that do so anyway find mixed bytes there, as with any channel of the JDK.
    call(unsafe { std::slice::from_raw_parts_mut(start.add(at), len) })
}

/// Runs `call` on a buffer of [`PIECE`] bytes that was used before, if there is one: fresh ones cost page faults.
pub(crate) fn with_buffer<T>(call: impl FnOnce(&mut [u8]) -> T) -> T {
    let kept = BUFFERS.lock().pop();
    let mut buffer = kept.unwrap_or_else(|| vec![0; PIECE].into_boxed_slice());
    let done = call(&mut buffer);
    let mut kept = BUFFERS.lock();
    if kept.len() < KEPT {
        kept.push(buffer);
    }
    done
}

/// Writes a file's attributes into an array of longs.
pub(crate) fn put_stat(env: &Env<'_>, inode: &Inode, out: &JLongArray<'_>) -> Result<()> {
    let values: [jlong; STAT_LEN] = [
        inode.no.0 as jlong,
        kind(inode.kind),
        inode.mode.into(),
        inode.uid.into(),
        inode.gid.into(),
        inode.nlink.into(),
        inode.size as jlong,
        inode.blocks as jlong,
        inode.rdev as jlong,
        inode.atime.secs,
        inode.atime.nanos.into(),
        inode.mtime.secs,
        inode.mtime.nanos.into(),
        inode.ctime.secs,
        inode.ctime.nanos.into(),
        inode.btime.secs,
        inode.btime.nanos.into(),
    ];
    out.set_region(env, 0, &values).map_err(java)
}

/// The place of the constant in `org.strongroom.FileKind`.
pub(crate) fn kind(kind: embed::FileKind) -> jlong {
    match kind {
        embed::FileKind::Regular => 0,
        embed::FileKind::Directory => 1,
        embed::FileKind::Symlink => 2,
        embed::FileKind::Fifo => 3,
        embed::FileKind::Socket => 4,
        embed::FileKind::CharDevice => 5,
        embed::FileKind::BlockDevice => 6,
    }
}
