//! The files of TLS to an engine: the authorities that its certificate is checked against, and the client's own certificate with its key.
//!
//! An option of the log's place names a file, or else a variable, both by the names that the engine's own client has for them. The files are
//! PEM, and read when a log is opened.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::percent::decoded;

/// What files are called: authorities, certificate, key.
pub(crate) struct Names {
    options: [&'static str; 3],
    variables: [&'static str; 3],
}

/// As `etcdctl` has them.
pub(crate) const ETCD: Names = Names {
    options: ["cacert", "cert", "key"],
    variables: ["ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY"],
};
/// As libpq has them.
pub(crate) const POSTGRES: Names = Names {
    options: ["sslrootcert", "sslcert", "sslkey"],
    variables: ["PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"],
};

/// Files by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files([Option<PathBuf>; 3]);

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

impl Files {
    /// Takes the options that name files out of those of a place. The place is remembered, so paths are absolute.
    pub(crate) fn split<'a>(names: &Names, options: &'a str) -> io::Result<(Self, Vec<&'a str>)> {
        let mut files = Self::default();
        let mut others = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let Some(at) = names.options.iter().position(|known| *known == name) else {
                others.push(option);
                continue;
            };
            let path = decoded(value).map(PathBuf::from);
            let path = path.filter(|path| path.is_absolute());
            let path = path.ok_or_else(|| invalid(format!("{name}=: not an absolute path")))?;
            files.0[at] = Some(path);
        }
        Ok((files, others))
    }

    /// With what variables name, where the place does not.
    pub(crate) fn or_variables(
        mut self,
        names: &Names,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        for (file, name) in self.0.iter_mut().zip(names.variables) {
            let given = || variable(name).filter(|value| !value.is_empty());
            *file = file.take().or_else(|| given().map(PathBuf::from));
        }
        self
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Their paths.
    pub(crate) fn paths(self) -> impl Iterator<Item = PathBuf> {
        self.0.into_iter().flatten()
    }

    /// Reads them. Without authorities of its own, a server's certificate is checked against the system's, or those of `SSL_CERT_FILE`.
    pub(crate) fn read(&self) -> io::Result<ClientConfig> {
        let [authorities, certificate, key] = &self.0;
        let mut roots = RootCertStore::empty();
        match authorities {
            None => {
                roots.add_parsable_certificates(of_the_system());
            }
            Some(path) => {
                for authority in certificates(path)? {
                    roots.add(authority).map_err(|e| refused(path, e))?;
                }
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        match (certificate, key) {
            (None, None) => Ok(config.with_no_client_auth()),
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                let secret = PrivateKeyDer::from_pem_slice(&read(key)?)
                    .map_err(|_| refused(key, "no private key in PEM form without a password"))?;
                let config = config.with_client_auth_cert(chain, secret);
                config.map_err(|e| refused(certificate, format!("with {}: {e}", key.display())))
            }
            (Some(path), None) | (None, Some(path)) => Err(refused(
                path,
                "a client's certificate and its key belong together: name both",
            )),
        }
    }
}

/// The authorities that the system accepts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
pub(crate) fn of_the_system() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

fn refused(path: &Path, why: impl std::fmt::Display) -> io::Error {
    invalid(format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(refused(path, "no certificate in PEM form")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_place_come_before_variables() {
        let (files, others) = Files::split(&ETCD, "tls=require&cert=/a%20b&key=/k").unwrap();
        assert_eq!(others, ["tls=require"]);
        let variables = |name: &str| match name {
            "ETCDCTL_CACERT" => Some("/ca".into()),
            "ETCDCTL_CERT" => Some("/other".into()),
            _ => None,
        };
        let files = files.or_variables(&ETCD, variables);
        let paths: Vec<_> = files.paths().collect();
        assert_eq!(paths, ["/ca", "/a b", "/k"].map(PathBuf::from));
        assert!(Files::split(&POSTGRES, "sslcert=relative").is_err());
        assert!(Files::split(&POSTGRES, "").unwrap().0.is_empty());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.pem");
        std::fs::write(&path, "not a certificate").unwrap();
        for files in [
            [Some(path.clone()), None, None],
            [None, Some(path.clone()), Some(path.clone())],
            [None, None, Some(path.clone())],
            [Some(dir.path().join("file.pem.missing")), None, None],
        ] {
            let refused = Files(files).read().unwrap_err().to_string();
            assert!(refused.contains("file.pem"), "{refused}");
        }
    }
}
