//! Who and what belongs to a shared room: its own certificate authority, the users with their keys, the disks with theirs.
//!
//! 1. The authority's key and the disks' keys are in notes of the room: encrypted and authenticated like its names. A user's
//!    private key is in the identity file made for it and nowhere else.
//! 2. A certificate is valid only while its serial number is listed for a user: a removed user is refused for good, with
//!    every key ever made for that user.
//! 3. Certificates have lifetimes. A key that is renewed is accepted for a while beside the new one, so that a client can change at its
//!    time; then its serial number is worth nothing.
//!
//! It deliberately does not know sessions, or what a user may do.

mod authority;
mod quotas;
mod rotation;

use std::time::Duration;

use metadata_proto::admin::{self, ADMINISTRATOR, Quota};
pub use metadata_proto::identity::{Identity, RENEW_BEFORE, serial_of};
use netdisk::{Admin, DiskAddress, DiskError, DiskKey};
use rcgen::ExtendedKeyUsagePurpose;
use room::{FileSystem as _, Room};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

pub use authority::Authority;
use authority::USER_LIFETIME;
pub(crate) use authority::{SERVER_RENEWAL, now};
pub(crate) use quotas::enforce as enforce_quotas;
pub use quotas::set_quota;
pub use rotation::{Lifetime, finish_rotation, lifetimes, rotate_authority};

const USERS: &str = "metadata.users";
/// Apart from the users: a version that does not know administrators lets none of them in.
const ADMINS: &str = "metadata.admins";
const DISKS: &str = "metadata.disks";
/// Most users of a room.
pub const USERS_MAX: usize = 4096;
/// Most keys of one user: machines, or replaced keys.
pub const KEYS_MAX: usize = 64;
/// Most groups of a user, as in `NGROUPS` of NFS with extended groups.
pub const GROUPS_MAX: usize = 1024;
/// Most disks of a room.
pub const DISKS_MAX: usize = 256;
/// How long a disk is waited for that is to say whose it is. One that is away is asked before it is used.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest name of a user or a disk, bytes.
const NAME_MAX: usize = 64;

/// Why something could not be enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The room refused.
    #[error("{0}")]
    Room(#[from] room::Error),
    /// There is one already.
    #[error("{0} exists already")]
    Exists(String),
    /// There is none.
    #[error("there is no {0}")]
    Unknown(String),
    /// A disk that another room uses.
    #[error(
        "the disk at {0} belongs to another room, whose data would be overwritten: remove it there (`strongroom disk remove`); if that room is gone, use `strongroom disk init --force` for new keys"
    )]
    OtherRoom(String),
    /// Not what a name may be, or too many.
    #[error("{0}")]
    Invalid(String),
    /// A certificate or key could not be made or read.
    #[error("{0}")]
    Certificate(String),
}

/// A user of the room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name.
    pub name: String,
    /// The number; 0 may do everything.
    pub uid: u32,
    /// Groups, 1 to [`GROUPS_MAX`]; the first is that of new files.
    pub gids: Vec<u32>,
    /// Serial numbers of the certificates, 16 bytes each.
    pub serials: Vec<[u8; 16]>,
    /// When certificates end, seconds since 1970. Those that are not named were made before there were lifetimes, and have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<([u8; 16], u64)>,
    /// How much it may have.
    #[serde(default, skip_serializing_if = "is_unlimited")]
    pub quota: Quota,
}

fn is_unlimited(quota: &Quota) -> bool {
    *quota == Quota::default()
}

impl User {
    /// Whether this is an administrator: without a session, and so without names and data.
    pub fn is_admin(&self) -> bool {
        self.uid == ADMINISTRATOR
    }

    /// When a certificate ends; `None` where it has no lifetime.
    pub fn end_of(&self, serial: &[u8; 16]) -> Option<u64> {
        admin::end_of(&self.ends, serial)
    }

    /// Forgets certificates that have ended.
    fn forget_ended(&mut self, now: u64) {
        self.ends.retain(|(serial, end)| {
            let ended = *end < now;
            if ended {
                self.serials.retain(|other| other != serial);
            }
            !ended
        });
    }
}

/// A disk of the room.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disk {
    /// The name people call it by.
    pub name: String,
    /// Where it is.
    pub address: DiskAddress,
    /// Its key.
    pub key: DiskKey,
}

impl Disk {
    fn admin(&self) -> Admin {
        Admin::new(self.address.clone(), self.key.clone(), CLAIM_TIMEOUT)
    }
}

fn failed(error: impl std::fmt::Display) -> EnrolError {
    EnrolError::Certificate(format!("certificates: {error}"))
}

fn note<T: DeserializeOwned>(room: &Room, name: &str) -> Result<Option<T>, EnrolError> {
    let Some(bytes) = room.note(name)?.map(Zeroizing::new) else {
        return Ok(None);
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        room::Error::Unsupported(format!("note `{name}` is not understood: {e}")).into()
    })
}

fn set_note(room: &Room, name: &str, value: &impl Serialize) -> Result<(), EnrolError> {
    let bytes = Zeroizing::new(serde_json::to_vec(value).map_err(failed)?);
    Ok(room.set_note(name, &bytes)?)
}

fn check_name(name: &str) -> Result<(), EnrolError> {
    let fits = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.len() <= NAME_MAX
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if fits {
        return Ok(());
    }
    Err(EnrolError::Invalid(format!(
        "`{}`: a name is 1 to {NAME_MAX} letters, digits, `.`, `_` and `-`, and begins with a letter or digit",
        name.escape_debug()
    )))
}

/// The users of a room, by name.
pub fn users(room: &Room) -> Result<Vec<User>, EnrolError> {
    Ok(note(room, USERS)?.unwrap_or_default())
}

/// The administrators of a room, by name.
pub fn admins(room: &Room) -> Result<Vec<User>, EnrolError> {
    Ok(note(room, ADMINS)?.unwrap_or_default())
}

/// Users and administrators: all holders of keys.
pub fn everybody(room: &Room) -> Result<Vec<User>, EnrolError> {
    let mut all = users(room)?;
    all.extend(admins(room)?);
    Ok(all)
}

/// The list that has this name, and where in it.
fn find(room: &Room, name: &str) -> Result<(&'static str, Vec<User>, usize), EnrolError> {
    for (list, all) in [(USERS, users(room)?), (ADMINS, admins(room)?)] {
        if let Ok(at) = all.binary_search_by(|u| u.name.as_str().cmp(name)) {
            return Ok((list, all, at));
        }
    }
    Err(EnrolError::Unknown(format!("user {name}")))
}

/// Makes a key for an administrator, new or known, who manages disks and users and reaches no file. Durable when this returns.
pub fn add_admin(room: &Room, name: &str) -> Result<(User, Identity), EnrolError> {
    check_name(name)?;
    match find(room, name) {
        Ok((ADMINS, all, at)) => return give_key(room, ADMINS, all, at),
        Ok(_) => return Err(EnrolError::Exists(format!("user {name}"))),
        Err(EnrolError::Unknown(_)) => {}
        Err(e) => return Err(e),
    }
    let mut all = admins(room)?;
    if all.len() >= USERS_MAX {
        return Err(EnrolError::Invalid(format!(
            "a room has at most {USERS_MAX} administrators"
        )));
    }
    let at = all.partition_point(|other| other.name.as_str() < name);
    all.insert(
        at,
        User {
            name: name.to_owned(),
            uid: ADMINISTRATOR,
            gids: Vec::new(),
            serials: Vec::new(),
            ends: Vec::new(),
            quota: Quota::default(),
        },
    );
    give_key(room, ADMINS, all, at)
}

/// Makes a key for a user, who is new or has these very numbers already: one user may come from several machines, each with
/// a key of its own. Durable when this returns.
pub fn add_user(
    room: &Room,
    name: &str,
    uid: u32,
    gids: &[u32],
) -> Result<(User, Identity), EnrolError> {
    check_name(name)?;
    if gids.is_empty() || gids.len() > GROUPS_MAX || uid == u32::MAX || gids.contains(&u32::MAX) {
        return Err(EnrolError::Invalid(format!(
            "a user has 1 to {GROUPS_MAX} groups, and no number is {}",
            u32::MAX
        )));
    }
    if let Ok((ADMINS, ..)) = find(room, name) {
        return Err(EnrolError::Exists(format!("administrator {name}")));
    }
    let mut users = users(room)?;
    let at = match users.binary_search_by(|u| u.name.as_str().cmp(name)) {
        Ok(at) if users[at].uid != uid || users[at].gids != gids => {
            return Err(EnrolError::Exists(format!(
                "user {name} with uid {} and groups {:?}",
                users[at].uid, users[at].gids
            )));
        }
        Ok(at) => at,
        Err(_) if users.len() >= USERS_MAX => {
            return Err(EnrolError::Invalid(format!(
                "a room has at most {USERS_MAX} users"
            )));
        }
        Err(at) => {
            let user = User {
                name: name.to_owned(),
                uid,
                gids: gids.to_vec(),
                serials: Vec::new(),
                ends: Vec::new(),
                quota: Quota::default(),
            };
            users.insert(at, user);
            at
        }
    };
    give_key(room, USERS, users, at)
}

/// Makes one more key for a known user. The key with the serial number `replaces` ends after `overlap`. Durable when this returns.
pub fn renew_user(
    room: &Room,
    name: &str,
    replaces: Option<[u8; 16]>,
    overlap: Duration,
) -> Result<(User, Identity), EnrolError> {
    let (list, mut users, at) = find(room, name)?;
    if let Some(old) = replaces {
        let user = &mut users[at];
        if !user.serials.contains(&old) {
            return Err(EnrolError::Invalid(format!(
                "the identity to replace is none of {name}, or has ended"
            )));
        }
        let end = now().saturating_add(overlap.as_secs());
        match user.ends.iter_mut().find(|(serial, _)| *serial == old) {
            Some((_, known)) => *known = end.min(*known),
            None => user.ends.push((old, end)),
        }
    }
    give_key(room, list, users, at)
}

/// Makes a key for the user at this place of a list, and stores that.
fn give_key(
    room: &Room,
    list: &str,
    mut users: Vec<User>,
    at: usize,
) -> Result<(User, Identity), EnrolError> {
    let user = &mut users[at];
    user.forget_ended(now());
    if user.serials.len() >= KEYS_MAX {
        return Err(EnrolError::Invalid(format!(
            "user {} has {KEYS_MAX} keys already: remove the user and add it again",
            user.name
        )));
    }
    let authority = Authority::of(room)?;
    let issued = authority.signer.issue(
        &user.name,
        Vec::new(),
        ExtendedKeyUsagePurpose::ClientAuth,
        USER_LIFETIME,
    )?;
    user.serials.push(issued.serial);
    user.ends.push((issued.serial, issued.end));
    set_note(room, list, &users)?;
    let identity = Identity::new(
        issued.certificate,
        PrivatePkcs8KeyDer::from(issued.key.to_vec()),
        authority.certificates(),
        authority.server_name,
    );
    Ok((users.swap_remove(at), identity))
}

/// Removes a user or administrator with all keys. Durable when this returns.
pub fn remove_user(room: &Room, name: &str) -> Result<User, EnrolError> {
    let (list, mut users, at) = find(room, name).or_else(|unknown| {
        // A removal that found no space is not durable yet.
        room.sync()?;
        Err(unknown)
    })?;
    let gone = users.remove(at);
    set_note(room, list, &users)?;
    Ok(gone)
}

/// The disks of a room, by name.
pub fn disks(room: &Room) -> Result<Vec<Disk>, EnrolError> {
    Ok(note(room, DISKS)?.unwrap_or_default())
}

/// What the disks of a room know it by.
pub(crate) fn id_of(room: &Room) -> Result<[u8; 16], room::Error> {
    Ok(*room.info()?.id.as_bytes())
}

/// Adds a disk, or changes the address of a known one (the same name and id). Durable when this returns. One that is another room's is
/// refused, if it answers.
pub fn add_disk(room: &Room, disk: Disk) -> Result<(), EnrolError> {
    check_name(&disk.name)?;
    let mut disks = disks(room)?;
    if let Some(known) = disks
        .iter_mut()
        .find(|d| d.name == disk.name && d.address.id == disk.address.id)
    {
        *known = disk;
        return set_note(room, DISKS, &disks);
    }
    if disks.len() >= DISKS_MAX {
        return Err(EnrolError::Invalid(format!(
            "a room has at most {DISKS_MAX} disks"
        )));
    }
    if let Some(known) = disks
        .iter()
        .find(|d| d.name == disk.name || d.address.id == disk.address.id)
    {
        return Err(EnrolError::Exists(format!(
            "disk {} at {}",
            known.name, known.address.address
        )));
    }
    if let Err(DiskError::OtherRoom) = disk.admin().claim(id_of(room)?) {
        return Err(EnrolError::OtherRoom(disk.address.address));
    }
    disks.push(disk);
    disks.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    set_note(room, DISKS, &disks)
}

/// Forgets a disk; the caller has made sure that it is empty. Durable when this returns.
pub fn remove_disk(room: &Room, name: &str) -> Result<Disk, EnrolError> {
    let mut disks = disks(room)?;
    let at = disks
        .iter()
        .position(|d| d.name == name)
        .ok_or_else(|| EnrolError::Unknown(format!("disk {name}")))?;
    let gone = disks.remove(at);
    set_note(room, DISKS, &disks)?;
    if let Err(error) = gone.admin().release(id_of(room)?) {
        tracing::warn!(disk = %gone.name, "the disk still belongs to this room, and other rooms cannot use it: {error}");
    }
    Ok(gone)
}

#[cfg(test)]
mod tests;
