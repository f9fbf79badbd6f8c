//! Open files.
#![allow(unsafe_code)] // In `native`: symbols by name are what Java looks for.
#![allow(non_snake_case)] // Their names are Java's.

use embed::OpenMode;
use jni::objects::{JByteArray, JByteBuffer, JLongArray};
use jni::sys::{jint, jlong};

use crate::call::{
    PIECE, SMALL, bytes, copy_in, copy_out, direct, java, native, offset, part, put_stat,
    with_buffer,
};
use crate::rooms::{attributes, path};
use crate::table;

/// The most that is appended in one piece, and so not mixed with what other handles append. Bytes.
const APPEND_WHOLE_MAX: usize = 64 << 20;

/// The bits that `org.strongroom.RoomFile` passes.
fn mode(flags: jint, mode: jint) -> OpenMode {
    OpenMode {
        read: flags & 1 != 0,
        write: flags & 2 != 0,
        append: flags & 4 != 0,
        create: flags & 8 != 0,
        create_new: flags & 16 != 0,
        truncate: flags & 32 != 0,
        mode: (mode & 0o7777) as u16,
    }
}

native! {
    fn openFile(env, room: jlong, name: JByteArray<'l>, flags: jint, permissions: jint) -> jlong {
        let name = bytes(env, &name)?;
        let file = table::room(room)?.open_file(path(&name)?, mode(flags, permissions))?;
        Ok(table::add_file(file))
    }

    fn closeFile(_, file: jlong) {
        table::close_file(file);
        Ok(())
    }

    fn statFile(env, file: jlong, out: JLongArray<'l>) {
        put_stat(env, &table::file(file)?.stat()?, &out)
    }

    fn length(_, file: jlong) -> jlong {
        Ok(table::file(file)?.len()? as jlong)
    }

    fn setLength(_, file: jlong, length: jlong) {
        table::file(file)?.set_len(offset(length)?)
    }

    fn setFileAttributes(env, file: jlong, values: JLongArray<'l>) {
        let set = attributes(env, &values)?;
        table::file(file)?.set_attributes(&set)
    }

    fn syncFile(_, file: jlong) {
        table::file(file)?.sync()
    }

    fn read(env, file: jlong, from: jlong, buffer: JByteArray<'l>, at: jint, len: jint) -> jint {
        let file = table::file(file)?;
        let from = offset(from)?;
        let (at, len) = part(buffer.len(env).map_err(java)?, at, len)?;
        if len <= SMALL {
            let mut small = [0; SMALL];
            let n = file.read_at(from, &mut small[..len])?;
            copy_out(env, &buffer, at, &small[..n])?;
            return Ok(n as jint);
        }
        with_buffer(|piece| {
            let mut done = 0;
            while done < len {
                let wanted = PIECE.min(len - done);
                let n = match file.read_at(from + done as u64, &mut piece[..wanted]) {
                    Ok(n) => n,
                    // What was read so far is good; the next call meets the error.
                    Err(_) if done > 0 => break,
                    Err(e) => return Err(e),
                };
                copy_out(env, &buffer, at + done, &piece[..n])?;
                done += n;
                if n < wanted {
                    break;
                }
            }
            Ok(done as jint)
        })
    }

    fn readDirect(
        env,
        file: jlong,
        from: jlong,
        buffer: JByteBuffer<'l>,
        at: jint,
        len: jint,
    ) -> jint {
        let file = table::file(file)?;
        let from = offset(from)?;
        let n = direct(env, &buffer, at, len, |part| file.read_at(from, part))?;
        Ok(n as jint)
    }

    /// Where the bytes went: `to`, or the end of a file that is appended to.
    fn write(env, file: jlong, to: jlong, buffer: JByteArray<'l>, at: jint, len: jint) -> jlong {
        let file = table::file(file)?;
        let to = offset(to)?;
        let (at, len) = part(buffer.len(env).map_err(java)?, at, len)?;
        if len <= SMALL {
            let mut small = [0; SMALL];
            copy_in(env, &buffer, at, &mut small[..len])?;
            return Ok(file.write_at(to, &small[..len])? as jlong);
        }
        let in_pieces = |piece: &mut [u8]| {
            let (mut done, mut start) = (0, to);
            while done < len {
                let n = piece.len().min(len - done);
                copy_in(env, &buffer, at + done, &mut piece[..n])?;
                let went = file.write_at(to + done as u64, &piece[..n])?;
                if done == 0 {
                    start = went;
                }
                done += n;
            }
            Ok(start as jlong)
        };
        match file.mode().append && len > PIECE {
            true => in_pieces(&mut vec![0; len.min(APPEND_WHOLE_MAX)]),
            false => with_buffer(in_pieces),
        }
    }

    fn writeDirect(
        env,
        file: jlong,
        to: jlong,
        buffer: JByteBuffer<'l>,
        at: jint,
        len: jint,
    ) -> jlong {
        let file = table::file(file)?;
        let to = offset(to)?;
        let went = direct(env, &buffer, at, len, |part| file.write_at(to, part))?;
        Ok(went as jlong)
    }
}
