//! `postgres://…` and `etcd://…`: where a log of commits is.
//!
//! A password is split off as soon as the text is read: nothing here prints or stores one.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::etcd::{self, EtcdLog};
use crate::log::CommitLog;
use crate::percent::decoded;
use crate::postgres::{self, PostgresLog};

/// The place of a log: an engine, its hosts, and what else it wants to know.
#[derive(Clone, PartialEq, Eq)]
pub struct LogPlace {
    engine: Engine,
    /// The whole text, without the password.
    text: String,
    password: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Postgres,
    Etcd,
}

const FORM: &str = "a log is written postgres://[USER@]HOST[:PORT]/DATABASE or etcd://[USER@]HOST:PORT[,HOST:PORT…]/PREFIX";

/// Where the user and password of a place are, in bytes.
fn user_info(text: &str) -> Option<std::ops::Range<usize>> {
    let begin = text.find("://")? + 3;
    let end = text[begin..]
        .find(['/', '?'])
        .map_or(text.len(), |len| begin + len);
    let at = text[begin..end].rfind('@')?;
    Some(begin..begin + at)
}

impl LogPlace {
    /// Reads a place. `Err` says what is wrong with it, without quoting it: it may have a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let engine = match text.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Engine::Postgres,
            Some(("etcd", _)) => Engine::Etcd,
            _ => return Err(FORM.into()),
        };
        if !text.chars().all(|c| c.is_ascii_graphic()) || text.contains('#') {
            return Err(format!("{FORM}; other characters are written %20"));
        }
        let mut place = Self {
            engine,
            text: text.to_owned(),
            password: None,
        };
        if let Some(user_info) = user_info(text)
            && let Some((user, password)) = text[user_info.clone()].split_once(':')
        {
            let password = decoded(password).ok_or("the password of the log is malformed")?;
            place.password = Some(password);
            place.text.replace_range(user_info, user);
        }
        if place.text.contains("password=") {
            return Err(
                "the log's password belongs behind its user, or into PGPASSWORD or ~/.pgpass"
                    .into(),
            );
        }
        // What else is wrong, the engine says. It is not opened: that reads certificates and passwords.
        let checked = match engine {
            Engine::Postgres => postgres::check(&place.text),
            Engine::Etcd => etcd::check(&place.text),
        };
        checked.map_err(|e| e.to_string())?;
        Ok(place)
    }

    /// The password, if the text had one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The same place with a password.
    pub fn with_password(mut self, password: Option<String>) -> Self {
        self.password = password;
        self
    }

    /// The files of certificates and keys that the place names.
    pub fn files(&self) -> Vec<PathBuf> {
        let named = match self.engine {
            Engine::Postgres => postgres::files(&self.text),
            Engine::Etcd => etcd::files(&self.text),
        };
        // It was parsed already.
        named.unwrap_or_default().paths().collect()
    }

    /// The log, for rooms of a bucket. Connects at the first request.
    ///
    /// # Errors
    /// `InvalidInput` where the place means nothing, or a certificate or key cannot be used.
    pub fn open(&self, bucket: &str) -> io::Result<Arc<dyn CommitLog>> {
        let password = self.password.as_deref();
        let address = self.address();
        Ok(match self.engine {
            Engine::Postgres => Arc::new(PostgresLog::new(&self.text, address, password, bucket)?),
            Engine::Etcd => Arc::new(EtcdLog::new(&self.text, address, password, bucket)?),
        })
    }

    /// Without user and options.
    fn address(&self) -> String {
        let mut address = self.text.clone();
        if let Some(user_info) = user_info(&address) {
            address.replace_range(user_info.start..user_info.end + 1, "");
        }
        let end = address.find('?').unwrap_or(address.len());
        address.truncate(end);
        address
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogPlace({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_split_off_and_shown_nowhere() {
        let place =
            LogPlace::parse("postgres://ada:s%3Aecret%21@db.example:5433/rooms?sslmode=require");
        let place = place.unwrap();
        assert_eq!(place.password(), Some("s:ecret!"));
        let text = "postgres://ada@db.example:5433/rooms?sslmode=require";
        assert_eq!(place.to_string(), text);
        let log = place.open("bucket").unwrap();
        assert_eq!(log.address().unwrap(), "postgres://db.example:5433/rooms");
        for shown in [format!("{place:?}"), format!("{log:?}")] {
            assert!(!shown.contains("ecret"), "{shown}");
        }
        let place = LogPlace::parse("etcd://root:secret@a:2379,b:2379/rooms").unwrap();
        assert_eq!(place.to_string(), "etcd://root@a:2379,b:2379/rooms");
        let log = format!("{:?}", place.open("bucket").unwrap());
        assert!(!log.contains("secret"), "{log}");
        assert!(place.files().is_empty());
    }

    #[test]
    fn certificates_belong_to_the_place_and_not_to_its_address() {
        for (text, address) in [
            ("etcd://a:1/p?cert=/c&key=/k", "etcd://a:1/p"),
            (
                "postgres://a/d?sslkey=/k&sslcert=/c&port=1",
                "postgres://a/d",
            ),
        ] {
            let place = LogPlace::parse(text).unwrap();
            assert_eq!(place.to_string(), text);
            assert_eq!(place.files(), ["/c", "/k"].map(PathBuf::from));
            assert_eq!(place.address(), address);
        }
    }

    #[test]
    fn what_is_no_place_is_refused_without_being_quoted() {
        for bad in [
            "secret",
            "mysql://a:secret@b/c",
            "postgres://a:%zzsecret@b/c",
            "postgres://b/c?password=secret",
            "postgres://b/c?sslmode=secret",
            "postgres://b/c?secret=1",
            "etcd://",
            "etcd:///secret",
            "etcd://a:1/secret?x=y",
            "etcd://a:secret/b",
            "etcd://a:1/b?cert=secret",
            "postgres://a b:secret@c/d",
        ] {
            let refused = LogPlace::parse(bad).unwrap_err();
            assert!(!refused.contains("secret"), "{bad}: {refused}");
        }
    }
}
