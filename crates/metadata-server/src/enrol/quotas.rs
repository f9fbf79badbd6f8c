//! How much users may have.
//!
//! A quota is kept with its user and goes with it. It holds for the files that the user's number owns, also for what others write to them.

use std::collections::HashMap;

use room::{Quota, Room};

use super::{ADMINS, EnrolError, USERS, find, set_note, users};

/// Sets a user's quota, in the place of the one before. Durable when this returns.
pub fn set_quota(room: &Room, name: &str, quota: Quota) -> Result<(), EnrolError> {
    let (list, mut users, at) = find(room, name)?;
    if list == ADMINS {
        return Err(EnrolError::Invalid(format!(
            "{name} is an administrator, and administrators own no files"
        )));
    }
    users[at].quota = quota;
    set_note(room, USERS, &users)
}

/// Has the room enforce the quotas of its users. A room without any does not count what its users have.
pub(crate) fn enforce(room: &Room) -> Result<(), EnrolError> {
    let mut quotas: HashMap<u32, Quota> = HashMap::new();
    for user in users(room)? {
        if user.quota != Quota::default() {
            let quota = quotas.entry(user.uid).or_default();
            // Of two users with one number, the stricter counts.
            quota.bytes = least(quota.bytes, user.quota.bytes);
            quota.files = least(quota.files, user.quota.files);
        }
    }
    match quotas.is_empty() && room.used_by(0).is_none() {
        true => Ok(()),
        false => Ok(room.set_quotas(quotas)?),
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    [one, other].into_iter().flatten().min()
}
