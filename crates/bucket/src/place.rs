//! `s3://bucket/prefix`: where a room is, and the client of that store.

use std::fmt;
use std::io;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::{BackoffConfig, Certificate, ClientOptions, ObjectStore, RetryConfig};

use crate::certificates;
use crate::credentials::{self, Credentials};

/// How long a connection is kept that nobody uses: routers forget it, and what is sent on it then is never answered.
const IDLE: std::time::Duration = std::time::Duration::from_secs(20);

/// How a place begins.
pub const SCHEME: &str = "s3://";

/// A bucket of an S3 store and a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    bucket: String,
    prefix: String,
}

impl Place {
    /// Reads `s3://bucket/prefix`. `Err` says what is wrong with it. The prefix may have several parts; it must not be missing, so that
    /// a bucket can hold other things.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = || format!("{text}: a room in a bucket is written {SCHEME}BUCKET/PREFIX");
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (bucket, prefix) = rest.split_once('/').ok_or_else(form)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if bucket.len() < 3 || !bucket.chars().all(is_plain) {
            return Err(form());
        }
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        let is_part = |part: &&str| part.chars().all(is_plain) && !part.starts_with('.');
        if parts.is_empty() || !parts.iter().all(is_part) {
            return Err(format!(
                "{}; a part of the prefix has letters, digits, `-`, `_` and `.`, and no dot in front",
                form()
            ));
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix: parts.join("/"),
        })
    }

    /// The bucket's name.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The prefix, without slashes around it.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name for files on this machine: other places have others.
    pub fn file_name(&self) -> String {
        format!("{}+{}", self.bucket, self.prefix.replace('/', "+"))
    }

    /// The store of the place, with endpoint, region and credentials of the usual variables: `AWS_ENDPOINT_URL`, `AWS_REGION`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and others of [`AmazonS3Builder::from_env`]. Plain HTTP only where the endpoint
    /// begins with `http://`. Its certificate is checked against those of the file `AWS_CA_BUNDLE`, else the system's.
    pub fn store(&self) -> io::Result<Arc<dyn ObjectStore>> {
        let mut builder = AmazonS3Builder::from_env();
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = variable("AWS_ENDPOINT_URL_S3")
            .or_else(|| variable("AWS_ENDPOINT_URL"))
            .or_else(|| variable("AWS_ENDPOINT"));
        if let Some(endpoint) = &endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if variable("AWS_REGION").is_none() && variable("AWS_DEFAULT_REGION").is_none() {
            builder = builder.with_region("us-east-1");
        }
        let is_plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        // Trying again is the caller's, who knows for how long.
        let once = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: 0,
            retry_timeout: std::time::Duration::from_secs(60),
        };
        let mut options = ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(std::time::Duration::from_secs(5))
            .with_pool_idle_timeout(IDLE)
            .with_allow_http(is_plain);
        let bundle = variable("AWS_CA_BUNDLE");
        if let Some(bundle) = &bundle {
            options = only_authorities(options, bundle)?;
        }
        let builder = credentials::checked(builder)?
            .with_bucket_name(&self.bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(once);
        let has_key = builder
            .get_config_value(&AmazonS3ConfigKey::AccessKeyId)
            .is_some();
        let client = |options| {
            let builder = builder.clone().with_client_options(options);
            if has_key {
                return builder.build();
            }
            let asking = Credentials::of(builder.clone())?;
            builder.with_credentials(Arc::new(asking)).build()
        };
        let store = match client(options.clone()) {
            // Without any certificates of the system a client is not made, before it is known whether it needs one.
            Err(_) if bundle.is_none() && certificates::of_the_system().is_empty() => {
                if !is_plain {
                    return Err(no_authorities(self));
                }
                client(options.with_no_system_certificates(true))
            }
            made => made,
        };
        let store = store
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("{self}: {e}")))?;
        Ok(Arc::new(store))
    }
}

fn no_authorities(place: &Place) -> io::Error {
    let why = format!(
        "{place}: this machine has no CA certificates to check the store's with; install its package ca-certificates, or name a file of them in \
         AWS_CA_BUNDLE"
    );
    io::Error::new(io::ErrorKind::NotFound, why)
}

/// A server's certificate must be of one of these, as the AWS CLI has it.
fn only_authorities(options: ClientOptions, bundle: &str) -> io::Result<ClientOptions> {
    let failed =
        |kind, why: String| io::Error::new(kind, format!("AWS_CA_BUNDLE, {bundle}: {why}"));
    let text = std::fs::read(bundle).map_err(|e| failed(e.kind(), e.to_string()))?;
    let authorities = Certificate::from_pem_bundle(&text).unwrap_or_default();
    if authorities.is_empty() {
        let why = "no certificate in PEM form".to_owned();
        return Err(failed(io::ErrorKind::InvalidInput, why));
    }
    let options = options.with_no_system_certificates(true);
    Ok(authorities
        .into_iter()
        .fold(options, ClientOptions::with_root_certificate))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_bucket_and_a_prefix() {
        let place = Place::parse("s3://rooms/work//2026/").unwrap();
        assert_eq!(place.to_string(), "s3://rooms/work/2026");
        assert_eq!(place.prefix(), "work/2026");
        assert_eq!(place.file_name(), "rooms+work+2026");
        for bad in [
            "rooms/x",
            "s3://rooms",
            "s3://rooms/",
            "s3://r/x",
            "s3://a b/x",
            "s3://rooms/../x",
            "s3://rooms/a b",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
