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

mod quotas;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metadata_proto::admin::Quota;
use metadata_proto::identity::provider;
pub use metadata_proto::identity::{Identity, RENEW_BEFORE, serial_of};
use netdisk::{DiskAddress, DiskKey};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use room::Room;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub(crate) use quotas::enforce as enforce_quotas;
pub use quotas::set_quota;

/// A certificate, with what belongs to it.
struct Issued {
    certificate: CertificateDer<'static>,
    /// In PKCS #8.
    key: Zeroizing<Vec<u8>>,
    serial: [u8; 16],
    /// Seconds since 1970.
    end: u64,
}

const DAY: Duration = Duration::from_secs(86_400);
/// For how long certificates are valid: the authority's, the server's (which has a new one at each start, and in time while it runs),
/// and those of users.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3652);
const SERVER_LIFETIME: Duration = DAY.saturating_mul(90);
const USER_LIFETIME: Duration = DAY.saturating_mul(730);
/// They are valid from so long ago: clocks differ.
const BACKDATED: Duration = DAY;
/// A server has a new certificate made after this time.
pub(crate) const SERVER_RENEWAL: Duration = DAY.saturating_mul(30);

const AUTHORITY: &str = "metadata.authority";
const USERS: &str = "metadata.users";
/// Apart from the users: a version that does not know administrators lets none of them in.
const ADMINS: &str = "metadata.admins";
/// The number of an administrator, which no user has.
const NOBODY: u32 = u32::MAX;
const DISKS: &str = "metadata.disks";
/// Most users of a room.
pub const USERS_MAX: usize = 4096;
/// Most keys of one user: machines, or replaced keys.
pub const KEYS_MAX: usize = 64;
/// Most groups of a user, as in `NGROUPS` of NFS with extended groups.
pub const GROUPS_MAX: usize = 1024;
/// Most disks of a room.
pub const DISKS_MAX: usize = 256;
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
        self.uid == NOBODY
    }

    /// When a certificate ends; `None` where it has no lifetime.
    pub fn end_of(&self, serial: &[u8; 16]) -> Option<u64> {
        let end = self.ends.iter().find(|(of, _)| of == serial);
        end.map(|(_, end)| *end)
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

/// What the authority signs with.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
struct Stored {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// The authority before, while it is rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Previous>,
}

/// An authority that is being replaced.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
struct Previous {
    certificate: Vec<u8>,
    key: Vec<u8>,
    /// The users' keys that it vouches for.
    serials: Vec<[u8; 16]>,
}

/// The room's certificate authority.
pub struct Authority {
    signer: Signer,
    /// The one before, while it is replaced: it vouches for the server, because every client knows it.
    previous: Option<Signer>,
    server_name: String,
}

/// A certificate with the key that signs others.
struct Signer {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    fn of(certificate: &[u8], key: &[u8]) -> Result<Self, EnrolError> {
        let certificate = CertificateDer::from(certificate.to_vec());
        let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key)).map_err(failed)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(&certificate, key).map_err(failed)?,
            certificate,
        })
    }

    /// A key and a certificate, signed by this one.
    fn issue(
        &self,
        name: &str,
        alternative: Vec<String>,
        purpose: ExtendedKeyUsagePurpose,
        lifetime: Duration,
    ) -> Result<Issued, EnrolError> {
        let mut serial: [u8; 16] = random()?;
        // Positive and without leading zeros, so that its encoding is these 16 bytes.
        serial[0] = serial[0] & 0x3f | 0x40;
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(alternative).map_err(failed)?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let end = limit(&mut params, lifetime, end_of(&self.certificate));
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Issued {
            certificate: certificate.der().clone(),
            key: Zeroizing::new(key.serialize_der()),
            serial,
            end,
        })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
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

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    since_epoch().as_secs()
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Sets from when a certificate is valid, and until when: `lifetime` from now on, or until `last`.
fn limit(params: &mut CertificateParams, lifetime: Duration, last: Option<u64>) -> u64 {
    let (epoch, now) = (rcgen::date_time_ymd(1970, 1, 1), since_epoch());
    let end = (now + lifetime).as_secs();
    let end = last.map_or(end, |last| end.min(last));
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + Duration::from_secs(end);
    end
}

fn random<const N: usize>() -> Result<[u8; N], EnrolError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

impl Authority {
    /// The room's authority; made where there is none yet.
    pub fn of(room: &Room) -> Result<Self, EnrolError> {
        let server_name = format!("{}.strongroom.internal", room.info()?.id);
        let stored = match note::<Stored>(room, AUTHORITY)? {
            Some(stored) => stored,
            None => {
                let made = Self::make(&server_name)?;
                set_note(room, AUTHORITY, &made)?;
                made
            }
        };
        let previous = stored.previous.as_ref();
        Ok(Self {
            signer: Signer::of(&stored.certificate, &stored.key)?,
            previous: previous
                .map(|it| Signer::of(&it.certificate, &it.key))
                .transpose()?,
            server_name,
        })
    }

    /// Every authority whose certificates are accepted, the present one first.
    fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let all = [Some(&self.signer), self.previous.as_ref()];
        let all = all.into_iter().flatten();
        all.map(|signer| signer.certificate.clone()).collect()
    }

    fn make(server_name: &str) -> Result<Stored, EnrolError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority of {server_name}"));
        limit(&mut params, AUTHORITY_LIFETIME, None);
        let certificate = params.self_signed(&key).map_err(failed)?;
        Ok(Stored {
            certificate: certificate.der().to_vec(),
            key: key.serialize_der(),
            previous: None,
        })
    }

    /// When the authority's own certificate ends, seconds since 1970; `None` where it has no lifetime.
    pub fn end(&self) -> Option<u64> {
        end_of(&self.signer.certificate)
    }

    /// The TLS of a server of this room, with a fresh key: version 1.3, and clients must have certificates of this room.
    pub fn server_config(&self) -> Result<ServerConfig, EnrolError> {
        let Issued {
            certificate, key, ..
        } = self.previous.as_ref().unwrap_or(&self.signer).issue(
            &self.server_name,
            vec![self.server_name.clone()],
            ExtendedKeyUsagePurpose::ServerAuth,
            SERVER_LIFETIME,
        )?;
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates() {
            roots.add(certificate).map_err(failed)?;
        }
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(failed)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![certificate],
                PrivatePkcs8KeyDer::from(key.to_vec()).into(),
            )
            .map_err(failed)?;
        // A session resumed would be one more way in to think about.
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// When a certificate ends, seconds since 1970; `None` where it has no lifetime.
fn end_of(certificate: &[u8]) -> Option<u64> {
    netdisk::certificate_end(certificate).ok().flatten()
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
            uid: NOBODY,
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

fn stored_authority(room: &Room) -> Result<Stored, EnrolError> {
    // One that is not there yet is made.
    Authority::of(room)?;
    note(room, AUTHORITY)?.ok_or_else(|| EnrolError::Unknown("authority".into()))
}

/// Begins to replace the room's authority: from now on the new one vouches for users, both are accepted, and the one before vouches for
/// the server. Durable when this returns.
pub fn rotate_authority(room: &Room) -> Result<(), EnrolError> {
    let old = stored_authority(room)?;
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
    set_note(room, AUTHORITY, &new)
}

/// Ends a rotation: the authority before is not accepted any more. Refused while users have keys of it, unless forced; these keys, which
/// are returned, end. Durable when this returns.
pub fn finish_rotation(room: &Room, force: bool) -> Result<Vec<[u8; 16]>, EnrolError> {
    let mut stored = stored_authority(room)?;
    let Some(previous) = stored.previous.take() else {
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
    set_note(room, AUTHORITY, &stored)?;
    Ok(ended)
}

/// What is to be renewed soon, or never ends, in sentences for the operator.
pub fn lifetimes(room: &Room) -> Result<Vec<Lifetime>, EnrolError> {
    let authority = Authority::of(room)?;
    let previous = stored_authority(room)?.previous.clone();
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

/// Removes a user or administrator with all keys. Durable when this returns.
pub fn remove_user(room: &Room, name: &str) -> Result<User, EnrolError> {
    let (list, mut users, at) = find(room, name)?;
    let gone = users.remove(at);
    set_note(room, list, &users)?;
    Ok(gone)
}

/// The disks of a room, by name.
pub fn disks(room: &Room) -> Result<Vec<Disk>, EnrolError> {
    Ok(note(room, DISKS)?.unwrap_or_default())
}

/// Adds a disk, or changes the address of a known one (the same name and id). Durable when this returns.
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
    disks.push(disk);
    disks.sort_by(|a, b| a.name.cmp(&b.name));
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
    Ok(gone)
}

#[cfg(test)]
mod tests;
