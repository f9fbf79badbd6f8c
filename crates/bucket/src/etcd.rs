//! etcd as the log of commits: a key each, created in a transaction only if there is none. Its JSON gateway is spoken to.
//!
//! 1. A transaction is acknowledged when a majority of the members has it on disk. What can be read is durable in the same way.
//! 2. A member that does not answer is not asked again before the others.

use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::certificates::{self, Files};
use crate::log::{CommitLog, Created, HEAD, LogError, lost};
use crate::names;
use crate::trying::words;

/// etcd refuses requests of more than 1.5 MiB, as it comes.
const RECORD_MAX: u64 = 1 << 20;
/// etcd keeps everything in memory: what is larger goes to the store.
const INLINE_MAX: u64 = 256 << 10;
/// Operations of one transaction; etcd allows 128.
const OPERATIONS: usize = 100;
const CONNECT: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(10);
/// The same where another member can be asked. One that waits for a leader that is gone answers after 7 seconds, and by then the others
/// have had a leader again for 5.
const ANSWER_OF_SEVERAL: Duration = Duration::from_secs(2);

/// What is said of a token, as of a malformed request, that knows of an earlier state of users and roles.
const OLD_TOKEN: &str = "revision of auth store is old";

/// Keys below a prefix.
pub(crate) struct EtcdLog {
    http: reqwest::Client,
    members: Vec<String>,
    /// The member that is asked first.
    member: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    address: String,
    /// Of all keys, with the bucket's name.
    prefix: String,
}

impl std::fmt::Debug for EtcdLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EtcdLog({}, {})", self.address, self.prefix)
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// What a place says.
struct Parsed<'a> {
    /// The URL of each one's interface.
    members: Vec<String>,
    user: Option<&'a str>,
    prefix: &'a str,
    /// Certificates and keys, where it is reached over TLS.
    tls: Option<Files>,
}

/// The files that a place names.
pub(crate) fn files(text: &str) -> io::Result<Files> {
    let options = text.split_once('?').map_or("", |(_, options)| options);
    Files::split(&certificates::ETCD, options).map(|(files, _)| files)
}

/// Whether a place means something to this engine.
pub(crate) fn check(text: &str) -> io::Result<()> {
    parse(text, |_| None).map(drop)
}

fn parse(text: &str, variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Parsed<'_>> {
    let rest = text
        .strip_prefix("etcd://")
        .ok_or_else(|| invalid("not etcd"))?;
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, prefix) = place.split_once('/').unwrap_or((place, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    let is_host = |host: &&str| {
        host.rsplit_once(':')
            .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
    };
    let hosts: Vec<&str> = hosts.split(',').collect();
    if !hosts.iter().all(is_host) {
        return Err(invalid("a member of etcd is written HOST:PORT"));
    }
    let is_near = |host: &&str| {
        let (name, _) = host.rsplit_once(':').expect("just seen");
        let address = name.trim_matches(['[', ']']).parse();
        address.map_or(name == "localhost", |ip: std::net::IpAddr| ip.is_loopback())
    };
    let names = &certificates::ETCD;
    let (files, others) = Files::split(names, options)?;
    let files = files.or_variables(names, variable);
    let has_tls = match others[..] {
        [] => !files.is_empty() || !hosts.iter().all(is_near),
        ["tls=require"] => true,
        ["tls=disable"] => false,
        _ => {
            return Err(invalid(
                "the options of an etcd log are tls=require, tls=disable, cacert=FILE, cert=FILE and key=FILE",
            ));
        }
    };
    let scheme = if has_tls { "https" } else { "http" };
    let members = hosts.iter().map(|host| format!("{scheme}://{host}/v3/"));
    Ok(Parsed {
        members: members.collect(),
        user,
        prefix: prefix.trim_matches('/'),
        tls: has_tls.then_some(files),
    })
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// A field by the name of the protocol, which newer gateways write in another way.
fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    let mut camel = String::new();
    for (at, word) in name.split('_').enumerate() {
        match word.split_at_checked(1) {
            Some((first, rest)) if at > 0 => camel += &(first.to_uppercase() + rest),
            _ => camel += word,
        }
    }
    match &value[name] {
        Value::Null => &value[camel],
        value => value,
    }
}

/// Comparisons that hold where a key has a record that is `head`, or is longer and begins so. etcd compares whole values only, but in the order
/// of their bytes: what begins so is above `head`, and below all that follow.
fn compare_head(key: &str, head: &[u8]) -> Vec<Value> {
    let compare = |result: &str, value: &[u8]| json!({"key": key, "target": "VALUE", "result": result, "value": encoded(value)});
    if head.len() < HEAD {
        return vec![compare("EQUAL", head)];
    }
    let mut above = head.to_vec();
    while above.pop_if(|last| *last == u8::MAX).is_some() {}
    let last = above.last_mut().expect("a record begins with words");
    *last += 1;
    vec![compare("GREATER", head), compare("LESS", &above)]
}

fn malformed() -> LogError {
    LogError::Unanswered("an answer that is no etcd's".into())
}

fn bytes_of(value: &Value) -> Result<Vec<u8>, LogError> {
    let text = value.as_str().ok_or_else(malformed)?;
    BASE64_STANDARD.decode(text).map_err(|_| malformed())
}

/// Moves on to the next member unless this one answered.
struct Asked<'a>(&'a AtomicUsize, usize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let (from, to) = (self.1, self.1 + 1);
        let _ = self
            .0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl EtcdLog {
    pub(crate) fn new(
        text: &str,
        address: String,
        password: Option<&str>,
        bucket: &str,
    ) -> io::Result<Self> {
        let place = parse(text, |name| std::env::var_os(name))?;
        let answer = match place.members.len() {
            1 => ANSWER,
            _ => ANSWER_OF_SEVERAL,
        };
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(answer)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        http = match &place.tls {
            Some(files) => http.tls_backend_preconfigured(files.read()?),
            // Without TLS, certificates of the system are neither needed nor looked for.
            None => http.tls_certs_only([]),
        };
        let http = http.build().map_err(io::Error::other)?;
        let slash = if place.prefix.is_empty() { "" } else { "/" };
        Ok(Self {
            http,
            members: place.members,
            member: AtomicUsize::new(0),
            user: place
                .user
                .map(|user| (user.to_owned(), password.unwrap_or_default().to_owned())),
            token: Mutex::new(None),
            address,
            prefix: format!("{}{slash}{bucket}", place.prefix),
        })
    }

    fn key(&self, room: &str, number: u64) -> String {
        format!("{}/{room}/{}", self.prefix, names::commit(number))
    }

    async fn post(&self, what: &str, body: &Value, token: Option<&str>) -> Result<Value, LogError> {
        let at = self.member.load(Ordering::Relaxed);
        let asked = Asked(&self.member, at);
        let member = &self.members[at % self.members.len()];
        let mut request = self
            .http
            .post(format!("{member}{what}"))
            .header("content-type", "application/json")
            .body(body.to_string());
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let unanswered = |e: reqwest::Error| LogError::Unanswered(words(&e.without_url()));
        let answer = request.send().await.map_err(unanswered)?;
        let status = answer.status();
        let answer = answer.bytes().await.map_err(unanswered)?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|_| malformed())?;
        if !status.is_success() {
            let why = format!(
                "{}: {}",
                status.as_u16(),
                answer["message"].as_str().unwrap_or("no reason")
            );
            return Err(match answer["code"].as_u64() {
                // Users or roles were changed since the token was given: another one is asked for.
                Some(3) if why.contains(OLD_TOKEN) => LogError::Forbidden(why),
                // gRPC's: invalid argument, not found, failed precondition, out of range, unimplemented.
                Some(3 | 5 | 9 | 11 | 12) => LogError::Refused(io::ErrorKind::InvalidInput, why),
                Some(7 | 16) => LogError::Forbidden(why),
                _ => LogError::Unanswered(why),
            });
        }
        std::mem::forget(asked);
        Ok(answer)
    }

    async fn ask(&self, what: &str, body: Value) -> Result<Value, LogError> {
        let Some((name, password)) = &self.user else {
            return self.post(what, &body, None).await;
        };
        let known = self.token.lock().clone();
        let token = match known {
            Some(token) => token,
            None => {
                let login = json!({"name": name, "password": password});
                let answer = self.post("auth/authenticate", &login, None).await;
                let answer = answer.map_err(|e| match e {
                    LogError::Refused(_, why) => LogError::Forbidden(why),
                    other => other,
                })?;
                let token = answer["token"].as_str().ok_or_else(malformed)?.to_owned();
                *self.token.lock() = Some(token.clone());
                token
            }
        };
        let answer = self.post(what, &body, Some(&token)).await;
        if let Err(LogError::Forbidden(_)) = answer {
            // Tokens end, and are asked for again.
            *self.token.lock() = None;
        }
        answer
    }
}

#[async_trait]
impl CommitLog for EtcdLog {
    fn address(&self) -> Option<String> {
        Some(self.address.clone())
    }

    fn record_max(&self) -> u64 {
        RECORD_MAX
    }

    fn inline_max(&self) -> u64 {
        INLINE_MAX
    }

    async fn create(
        &self,
        room: &str,
        number: u64,
        record: Bytes,
        previous: &[u8],
    ) -> Result<Created, LogError> {
        let key = encoded(self.key(room, number));
        let is_free = json!({"key": key, "target": "VERSION", "result": "EQUAL", "version": "0"});
        let mut compare = vec![is_free];
        if number > 1 {
            let before = encoded(self.key(room, number - 1));
            compare.extend(compare_head(&before, previous));
        }
        let body = json!({
            "compare": compare,
            "success": [{"requestPut": {"key": key, "value": encoded(&record)}}],
            "failure": [{"requestRange": {"key": key}}],
        });
        let answer = self.ask("kv/txn", body).await?;
        if answer["succeeded"] == true {
            return Ok(Created::Ours);
        }
        let there = &field(&answer["responses"][0], "response_range")["kvs"][0];
        if there.is_null() {
            return Err(lost(number));
        }
        match bytes_of(&there["value"])? == record {
            true => Ok(Created::Ours),
            false => Ok(Created::Taken),
        }
    }

    async fn get(&self, room: &str, number: u64) -> Result<Option<Bytes>, LogError> {
        let body = json!({"key": encoded(self.key(room, number))});
        let answer = self.ask("kv/range", body).await?;
        match &answer["kvs"][0] {
            Value::Null => Ok(None),
            there => Ok(Some(bytes_of(&there["value"])?.into())),
        }
    }

    async fn list(&self, room: &str, after: u64) -> Result<Vec<u64>, LogError> {
        let (from, to) = (
            self.key(room, after.saturating_add(1)),
            self.key(room, u64::MAX),
        );
        let body = json!({"key": encoded(from), "range_end": encoded(to), "keys_only": true});
        let answer = self.ask("kv/range", body).await?;
        let mut numbers = Vec::new();
        for there in answer["kvs"].as_array().map_or(&[][..], |kvs| kvs) {
            let key = bytes_of(&there["key"])?;
            let digits = key.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let number = std::str::from_utf8(digits)
                .ok()
                .and_then(|text| text.parse().ok());
            numbers.push(number.ok_or_else(malformed)?);
        }
        Ok(numbers)
    }

    async fn delete(&self, room: &str, numbers: &[u64]) -> Result<(), LogError> {
        for numbers in numbers.chunks(OPERATIONS) {
            let each = numbers.iter().map(
                |number| json!({"requestDeleteRange": {"key": encoded(self.key(room, *number))}}),
            );
            let body = json!({"compare": [], "success": each.collect::<Vec<_>>()});
            self.ask("kv/txn", body).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_asked_in_plain_text_only_on_this_machine_or_where_said_so() {
        let members = |text| EtcdLog::new(text, String::new(), None, "b").map(|log| log.members);
        assert_eq!(
            members("etcd://127.0.0.1:1,[::1]:2/p").unwrap()[1],
            "http://[::1]:2/v3/"
        );
        assert_eq!(members("etcd://a:1").unwrap(), ["https://a:1/v3/"]);
        assert_eq!(
            members("etcd://a:1/p?tls=disable").unwrap(),
            ["http://a:1/v3/"]
        );
        assert!(members("etcd://a/p").is_err());
        let members = |text, variable: &'static str| {
            let given = move |name: &str| (name == variable).then(|| "/ca.pem".into());
            parse(text, given).unwrap().members
        };
        let near = "https://127.0.0.1:1/v3/";
        assert_eq!(members("etcd://127.0.0.1:1/p?cacert=/ca.pem", ""), [near]);
        assert_eq!(members("etcd://127.0.0.1:1", "ETCDCTL_CACERT"), [near]);
    }

    #[test]
    fn a_long_record_is_compared_by_its_head() {
        let compared = |head: &[u8]| {
            let each = compare_head("k", head).into_iter();
            let each = each.map(|one| {
                let result = one["result"].as_str().unwrap().to_owned();
                (result, bytes_of(&one["value"]).unwrap())
            });
            each.collect::<Vec<_>>()
        };
        assert_eq!(compared(b"ab"), [("EQUAL".to_owned(), b"ab".to_vec())]);
        let long = |last: &[u8]| [&[7; HEAD - 2], last].concat();
        for (head, above) in [
            (long(&[1, 2]), long(&[1, 3])),
            (long(&[1, 255]), long(&[2])),
        ] {
            let expected = [
                ("GREATER".to_owned(), head.clone()),
                ("LESS".to_owned(), above),
            ];
            assert_eq!(compared(&head), expected);
        }
    }

    #[test]
    fn fields_are_found_by_both_spellings() {
        assert_eq!(field(&json!({"response_range": 1}), "response_range"), 1);
        assert_eq!(field(&json!({"responseRange": 1}), "response_range"), 1);
    }
}
