//! Credentials of a store that are asked for while it is used: of a role, from a token or the machine's own.
//!
//! 1. After the machine was suspended they are asked for again. `object_store` counts how long they are good by a clock that stops
//!    meanwhile, and would use those that have ended.
//! 2. What cannot be sent in a header is an error. `object_store` panics at it.

use std::fmt;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use object_store::{CredentialProvider, Error, HeaderValue, Result};
use parking_lot::Mutex;

use crate::clock;

/// Where a token is that is sent for credentials.
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
/// How much longer the machine was suspended, for credentials to be asked for again: the two clocks are not read at one moment.
const SLEPT: Duration = Duration::from_secs(1);

/// The keys of a store's variables, without white space around them: what a file or a secret had at its end.
///
/// # Errors
/// `InvalidInput` where they have other characters that cannot be sent, or the file of a token has.
pub(crate) fn checked(mut builder: AmazonS3Builder) -> io::Result<AmazonS3Builder> {
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    for (key, name) in [
        (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (AmazonS3ConfigKey::SecretAccessKey, "AWS_SECRET_ACCESS_KEY"),
        (AmazonS3ConfigKey::Token, "AWS_SESSION_TOKEN"),
    ] {
        let Some(value) = builder.get_config_value(&key) else {
            continue;
        };
        let value = value.trim();
        if HeaderValue::from_str(value).is_err() {
            return invalid(format!("{name}: has characters that no key has"));
        }
        builder = builder.with_config(key, value);
    }
    // Where it is not there now, it may be when it is needed.
    let file = builder.get_config_value(&AmazonS3ConfigKey::ContainerAuthorizationTokenFile);
    let token = file.as_ref().and_then(|file| std::fs::read(file).ok());
    match (file, token) {
        (Some(file), Some(token)) if HeaderValue::from_bytes(&token).is_err() => {
            invalid(malformed(&file))
        }
        _ => Ok(builder),
    }
}

fn malformed(file: &str) -> String {
    format!(
        "{TOKEN_FILE}, {file}: the token has a newline behind it, or another character that cannot be sent; write it without"
    )
}

/// Asks for credentials, and again after the machine was suspended.
pub(crate) struct Credentials {
    builder: AmazonS3Builder,
    current: Mutex<Current>,
    /// How long the machine was suspended since its start.
    suspended: fn() -> Duration,
}

struct Current {
    provider: AwsCredentialProvider,
    suspended: Duration,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those that a client of this builder would have.
    pub(crate) fn of(builder: AmazonS3Builder) -> Result<Self> {
        Self::on(builder, clock::suspended)
    }

    fn on(builder: AmazonS3Builder, suspended: fn() -> Duration) -> Result<Self> {
        let current = Current {
            suspended: suspended(),
            provider: provider(&builder)?,
        };
        Ok(Self {
            builder,
            current: Mutex::new(current),
            suspended,
        })
    }

    /// One that has not kept anything since before the machine was suspended.
    fn provider(&self) -> Result<AwsCredentialProvider> {
        let (mut current, suspended) = (self.current.lock(), (self.suspended)());
        if suspended.saturating_sub(current.suspended) > SLEPT {
            *current = Current {
                suspended,
                provider: provider(&self.builder)?,
            };
        }
        Ok(current.provider.clone())
    }
}

fn provider(builder: &AmazonS3Builder) -> Result<AwsCredentialProvider> {
    Ok(builder.clone().build()?.credentials().clone())
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let provider = self.provider()?;
        let asked = AssertUnwindSafe(provider.get_credential()).catch_unwind();
        asked.await.unwrap_or_else(|_| {
            let key = AmazonS3ConfigKey::ContainerAuthorizationTokenFile;
            let file = self.builder.get_config_value(&key).unwrap_or_default();
            Err(Error::Generic {
                store: "S3",
                source: malformed(&file).into(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Gives credentials for good to each who asks, one after the other; returns its address.
    fn serve() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines {
                    if line.unwrap().is_empty() {
                        break;
                    }
                }
                let body = format!(
                    r#"{{"AccessKeyId":"key-{n}","SecretAccessKey":"s","Token":"t","Expiration":"2100-01-01T00:00:00Z"}}"#
                );
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let len = body.len();
                write!(stream, "{head}\r\nContent-Length: {len}\r\n\r\n{body}").unwrap();
            }
        });
        format!("http://{address}/")
    }

    fn builder(address: &str, token: &Path) -> AmazonS3Builder {
        let token = token.to_str().unwrap();
        AmazonS3Builder::new()
            .with_bucket_name("rooms")
            .with_config(AmazonS3ConfigKey::ContainerCredentialsFullUri, address)
            .with_config(AmazonS3ConfigKey::ContainerAuthorizationTokenFile, token)
    }

    fn asked(credentials: &Credentials) -> Result<String> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let got = runtime.block_on(credentials.get_credential())?;
        Ok(got.key_id.clone())
    }

    /// Those that ended while the machine was suspended were used until as much time had passed again.
    #[test]
    fn credentials_are_asked_for_again_after_the_machine_was_suspended() {
        static SUSPENDED: AtomicU64 = AtomicU64::new(1000);
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&token, "token").unwrap();
        let suspended = || Duration::from_secs(SUSPENDED.load(Ordering::Relaxed));
        let credentials = Credentials::on(builder(&serve(), token.path()), suspended).unwrap();
        for _ in 0..2 {
            assert_eq!(asked(&credentials).unwrap(), "key-0");
        }
        SUSPENDED.store(2000, Ordering::Relaxed);
        for _ in 0..2 {
            assert_eq!(asked(&credentials).unwrap(), "key-1");
        }
    }

    /// The thread that asked panicked, and the request was abandoned.
    #[test]
    fn a_token_with_a_newline_behind_it_is_an_error() {
        let token = tempfile::NamedTempFile::new().unwrap();
        let builder = builder(&serve(), token.path());
        std::fs::write(&token, "token\n").unwrap();
        let refused = checked(builder.clone()).unwrap_err().to_string();
        assert!(refused.contains(TOKEN_FILE), "{refused}");
        let credentials = Credentials::of(builder.clone()).unwrap();
        let refused = asked(&credentials).unwrap_err().to_string();
        assert!(refused.contains(TOKEN_FILE), "{refused}");
        std::fs::write(&token, "token").unwrap();
        checked(builder).unwrap();
        assert_eq!(asked(&credentials).unwrap(), "key-0");
    }

    /// As of a secret that was written with an editor. The store's client panicked at it.
    #[test]
    fn keys_have_no_white_space_around_them() {
        let builder = AmazonS3Builder::new()
            .with_access_key_id("key\n")
            .with_secret_access_key(" secret\r\n")
            .with_token("token\n");
        let value = |key| {
            let checked = checked(builder.clone()).unwrap();
            checked.get_config_value(&key).unwrap()
        };
        assert_eq!(value(AmazonS3ConfigKey::AccessKeyId), "key");
        assert_eq!(value(AmazonS3ConfigKey::SecretAccessKey), "secret");
        assert_eq!(value(AmazonS3ConfigKey::Token), "token");
        let refused = checked(builder.with_access_key_id("a\nb")).unwrap_err();
        assert!(refused.to_string().contains("AWS_ACCESS_KEY_ID"));
    }
}
