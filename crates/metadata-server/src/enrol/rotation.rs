//! The authority's rotation, and when certificates end.

use metadata_proto::identity::RENEW_BEFORE;
use room::Room;
use serde::{Deserialize, Serialize};

use super::authority::{Authority, Previous, end_of, now, store, stored};
use super::{ADMINS, EnrolError, USERS, admins, everybody, set_note, users};

/// Begins to replace the room's authority: from now on the new one vouches for users, both are accepted, and the one before vouches for
/// the server. Durable when this returns.
pub fn rotate_authority(room: &Room) -> Result<(), EnrolError> {
    let old = stored(room)?;
    if old.previous.is_some() {
        return Err(EnrolError::Exists("a rotation that is not finished".into()));
    }
    let server_name = Authority::of(room)?.server_name;
    let mut new = Authority::make(&server_name)?;
    new.previous = Some(Previous {
        certificate: old.certificate.clone(),
        key: old.key.clone(),
        serials: everybody(room)?
            .into_iter()
            .flat_map(|u| u.serials)
            .collect(),
    });
    store(room, &new)
}

/// Ends a rotation: the authority before is not accepted any more. Refused while users have keys of it, unless forced; these keys, which
/// are returned, end. Durable when this returns.
pub fn finish_rotation(room: &Room, force: bool) -> Result<Vec<[u8; 16]>, EnrolError> {
    let mut authority = stored(room)?;
    let Some(previous) = authority.previous.take() else {
        return Err(EnrolError::Unknown("rotation to finish".into()));
    };
    let (mut users, mut admins) = (users(room)?, admins(room)?);
    let old = |serial: &[u8; 16]| previous.serials.contains(serial);
    let waiting: Vec<&str> = users
        .iter_mut()
        .chain(&mut admins)
        .filter_map(|user| {
            user.forget_ended(now());
            user.serials.iter().any(old).then_some(user.name.as_str())
        })
        .collect();
    if !force && !waiting.is_empty() {
        return Err(EnrolError::Invalid(format!(
            "keys from before the rotation, which would end, are of {}: renew them with `user renew --replaces`, remove the users, or force it",
            waiting.join(", ")
        )));
    }
    let mut ended = Vec::new();
    for user in users.iter_mut().chain(&mut admins) {
        user.ends.retain(|(serial, _)| !old(serial));
        let (gone, kept) = user.serials.iter().partition(|serial| old(serial));
        user.serials = kept;
        let gone: Vec<[u8; 16]> = gone;
        ended.extend(gone);
    }
    set_note(room, USERS, &users)?;
    if !admins.is_empty() {
        set_note(room, ADMINS, &admins)?;
    }
    store(room, &authority)?;
    Ok(ended)
}

/// What is to be renewed soon, or never ends, in sentences for the operator.
pub fn lifetimes(room: &Room) -> Result<Vec<Lifetime>, EnrolError> {
    let authority = Authority::of(room)?;
    let previous = stored(room)?.previous.clone();
    let mut all = vec![Lifetime {
        of: "the room's authority".into(),
        end: authority.end(),
        replaced: false,
    }];
    all.extend(previous.as_ref().map(|it| Lifetime {
        of: "the room's authority before, until the rotation is finished".into(),
        end: end_of(&it.certificate),
        replaced: true,
    }));
    for user in everybody(room)? {
        for serial in &user.serials {
            let replaced = previous
                .as_ref()
                .is_some_and(|it| it.serials.contains(serial));
            let since = if replaced {
                ", from before the authority's rotation"
            } else {
                ""
            };
            all.push(Lifetime {
                of: format!("a key of {}{since}", user.name),
                end: user.end_of(serial),
                replaced,
            });
        }
    }
    Ok(all)
}

/// How long something is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// What.
    pub of: String,
    /// When it ends, seconds since 1970; `None`: it was made before there were lifetimes.
    pub end: Option<u64>,
    /// It belongs to an authority that is being replaced.
    pub replaced: bool,
}

impl Lifetime {
    /// Whether it is to be renewed, or is over.
    pub fn is_due(&self) -> bool {
        let soon = now().saturating_add(RENEW_BEFORE.as_secs());
        self.end.is_some_and(|end| end < soon)
    }
}
