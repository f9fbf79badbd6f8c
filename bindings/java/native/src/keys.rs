//! Keys of rooms: what opens them, and their slots.
#![allow(unsafe_code)] // In `native`: symbols by name are what Java looks for.
#![allow(non_snake_case)] // Their names are Java's.

use embed::{Argon2Cost, Error, Key, Result, Secret, SlotKind};
use jni::Env;
use jni::objects::{JByteArray, JString};
use jni::sys::{jint, jlong};

use crate::call::{bytes, native, text};
use crate::table;

pub(crate) fn key(env: &Env<'_>, kind: jint, array: &JByteArray<'_>) -> Result<Key> {
    let secret = Secret::new(bytes(env, array)?);
    match kind {
        0 if secret.expose().is_empty() => Err(Error::Argument("an empty passphrase".into())),
        0 => Ok(Key::Passphrase(secret)),
        1 => Ok(Key::File(secret)),
        2 if secret.expose().len() != 32 => {
            Err(Error::Argument("a raw key has 32 bytes".to_owned()))
        }
        2 => Ok(Key::Raw(secret)),
        _ => Err(Error::Argument(format!("a key of kind {kind}"))),
    }
}

/// Memory in KiB, passes, lanes; memory 0: measured.
pub(crate) fn cost(memory_kib: jint, passes: jint, lanes: jint) -> Result<Option<Argon2Cost>> {
    let number = |n: jint| {
        u32::try_from(n).map_err(|_| Error::Argument(format!("a key derivation cost of {n}")))
    };
    Ok(match number(memory_kib)? {
        0 => None,
        memory_kib => Some(Argon2Cost {
            memory_kib,
            passes: number(passes)?,
            lanes: number(lanes)?,
        }),
    })
}

fn slot_kind(kind: SlotKind) -> &'static str {
    match kind {
        SlotKind::Passphrase => "PASSPHRASE",
        SlotKind::KeyFile => "KEY_FILE",
        SlotKind::RawKey => "RAW_KEY",
        _ => "OTHER",
    }
}

native! {
    /// Number, kind, seconds since 1970 and label of each, all separated by NUL.
    fn slots(env, room: jlong) -> JString<'l> {
        let all: Vec<String> = table::room(room)?
            .slots()?
            .into_iter()
            .map(|s| {
                format!(
                    "{}\0{}\0{}\0{}",
                    s.id,
                    slot_kind(s.kind),
                    s.created_unix_s,
                    s.label
                )
            })
            .collect();
        text(env, &all.join("\0"))
    }

    fn addKey(
        env,
        room: jlong,
        key_kind: jint,
        secret: JByteArray<'l>,
        memory_kib: jint,
        passes: jint,
        lanes: jint,
        label: JByteArray<'l>,
    ) -> jint {
        let key = key(env, key_kind, &secret)?;
        let label = String::from_utf8(bytes(env, &label)?)
            .map_err(|_| Error::Argument("a label that is no text".into()))?;
        let cost = cost(memory_kib, passes, lanes)?;
        Ok(table::room(room)?.add_key(key, cost, &label)? as jint)
    }

    fn changeKey(
        env,
        room: jlong,
        slot: jint,
        key_kind: jint,
        secret: JByteArray<'l>,
        memory_kib: jint,
        passes: jint,
        lanes: jint,
    ) {
        let key = key(env, key_kind, &secret)?;
        let cost = cost(memory_kib, passes, lanes)?;
        table::room(room)?.change_key(slot as u32, key, cost)
    }

    fn removeKey(_, room: jlong, slot: jint) {
        table::room(room)?.remove_key(slot as u32)
    }
}
