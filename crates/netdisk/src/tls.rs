//! TLS 1.3 around the protocol: the disk shows a certificate that the client knows by its hash.
//!
//! 1. The client goes on only with who has the private key of exactly that certificate: name, issuer and dates do not count,
//!    the handshake's signature does.
//! 2. Only TLS 1.3, no resumption, no tickets. The client shows no certificate: its capabilities say what it may do.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    version,
};
use subtle::ConstantTimeEq;

use crate::key_file::DiskCertificate;

/// The name every disk's certificate has; nobody checks it.
pub(crate) const SERVER_NAME: &str = "disk.strongroom.invalid";

/// SHA-256 of a certificate in DER.
pub fn certificate_hash(certificate: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs_digest(certificate);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

fn aws_lc_rs_digest(data: &[u8]) -> ::aws_lc_rs::digest::Digest {
    ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, data)
}

/// The disk's side.
pub(crate) fn server(certificate: &DiskCertificate) -> Result<Arc<ServerConfig>, Error> {
    let (certificate, key) = certificate.for_rustls();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The client's side, for the disk whose certificate has this hash.
pub(crate) fn client(hash: [u8; 32]) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { hash, provider }))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Takes one certificate only.
#[derive(Debug)]
struct Pinned {
    hash: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if certificate_hash(end_entity).ct_eq(&self.hash).into() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
