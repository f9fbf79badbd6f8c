//! The room's certificate authority: what it signs, and for how long that is valid.
//!
//! It deliberately does not know users.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metadata_proto::identity::provider;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use room::Room;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{EnrolError, failed, note, set_note};

/// A certificate, with what belongs to it.
pub(super) struct Issued {
    pub(super) certificate: CertificateDer<'static>,
    /// In PKCS #8.
    pub(super) key: Zeroizing<Vec<u8>>,
    pub(super) serial: [u8; 16],
    /// Seconds since 1970.
    pub(super) end: u64,
}

pub(super) const DAY: Duration = Duration::from_secs(86_400);
/// For how long certificates are valid: the authority's, the server's (which has a new one at each start, and in time while it runs),
/// and those of users.
pub(super) const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3652);
const SERVER_LIFETIME: Duration = DAY.saturating_mul(90);
pub(super) const USER_LIFETIME: Duration = DAY.saturating_mul(730);
/// They are valid from so long ago: clocks differ.
const BACKDATED: Duration = DAY;
/// A server has a new certificate made after this time.
pub(crate) const SERVER_RENEWAL: Duration = DAY.saturating_mul(30);
const AUTHORITY: &str = "metadata.authority";

/// What the authority signs with.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub(super) struct Stored {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// The authority before, while it is rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) previous: Option<Previous>,
}

/// An authority that is being replaced.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub(super) struct Previous {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// The users' keys that it vouches for.
    pub(super) serials: Vec<[u8; 16]>,
}

/// The room's certificate authority.
pub struct Authority {
    pub(super) signer: Signer,
    /// The one before, while it is replaced: it vouches for the server, because every client knows it.
    pub(super) previous: Option<Signer>,
    pub(super) server_name: String,
}

/// A certificate with the key that signs others.
pub(super) struct Signer {
    pub(super) certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    pub(super) fn of(certificate: &[u8], key: &[u8]) -> Result<Self, EnrolError> {
        let certificate = CertificateDer::from(certificate.to_vec());
        let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key)).map_err(failed)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_der(&certificate, key).map_err(failed)?,
            certificate,
        })
    }

    /// A key and a certificate, signed by this one.
    pub(super) fn issue(
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
/// What is stored; an authority that is not there yet is made.
pub(super) fn stored(room: &Room) -> Result<Stored, EnrolError> {
    Authority::of(room)?;
    note(room, AUTHORITY)?.ok_or_else(|| EnrolError::Unknown("authority".into()))
}

pub(super) fn store(room: &Room, stored: &Stored) -> Result<(), EnrolError> {
    set_note(room, AUTHORITY, stored)
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
    pub(super) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let all = [Some(&self.signer), self.previous.as_ref()];
        let all = all.into_iter().flatten();
        all.map(|signer| signer.certificate.clone()).collect()
    }

    pub(super) fn make(server_name: &str) -> Result<Stored, EnrolError> {
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
pub(super) fn end_of(certificate: &[u8]) -> Option<u64> {
    netdisk::certificate_end(certificate).ok().flatten()
}
