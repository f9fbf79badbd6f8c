//! PostgreSQL as the log of commits: a row each, with room and number as primary key.
//!
//! 1. A commit is acknowledged when its transaction is durable as the server is set up: on its disk, and on its synchronous standbys. The
//!    sessions raise `synchronous_commit` to `on`; a server with `fsync = off` is refused.
//! 2. A commit that is there already, from a try whose answer was lost, is written again before it counts. A transaction that lost its
//!    session while it waited for a standby is visible although no standby has it; the second write waits for the standby too.
//! 3. A session that did not answer is never used again: it may be waiting.
//! 4. Of several hosts, one that does not answer is left: it may be a primary that hangs, and another one has taken its place.
//! 5. Each runtime has a session of its own: one that nobody drives receives nothing.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Error, NoTls, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::certificates::{self, Files};
use crate::log::{CommitLog, Created, LogError, lost};
use crate::trying::{TRY, words};

const TABLE: &str = "strongroom_commits";
/// How long a connection may take; and a session, where there is another host: a server that hangs accepts connections, and never says a word.
const CONNECT: Duration = Duration::from_secs(5);
/// How long what was sent may wait for an acknowledgement of TCP: then the connection is dead.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Bytes of a record: far less than a row can have, and what one message may be.
const RECORD_MAX: u64 = 32 << 20;
/// Where Debian's and most others' servers have their sockets.
const SOCKETS: &str = "/var/run/postgresql";

/// What a row has is sealed: compressing it is in vain. Rows of a small commit are kept out of the table for large values.
const CREATE_TABLE: &str = "
    CREATE TABLE strongroom_commits (
        room text NOT NULL, number bigint NOT NULL, record bytea NOT NULL, PRIMARY KEY (room, number)
    ) WITH (toast_tuple_target = 8160);
    ALTER TABLE strongroom_commits ALTER COLUMN record SET STORAGE EXTERNAL";
const CREATE: &str = "
    INSERT INTO strongroom_commits AS c (room, number, record)
    SELECT $1::text, $2::bigint, $3::bytea
    WHERE $2 = 1 OR EXISTS (
        SELECT FROM strongroom_commits WHERE room = $1 AND number = $2 - 1 AND substr(record, 1, length($4::bytea)) = $4::bytea
    )
    ON CONFLICT (room, number) DO UPDATE SET number = c.number WHERE c.record = EXCLUDED.record";
const GET: &str = "SELECT record FROM strongroom_commits WHERE room = $1 AND number = $2";
const LIST: &str =
    "SELECT number FROM strongroom_commits WHERE room = $1 AND number > $2 ORDER BY number";
const DELETE: &str = "DELETE FROM strongroom_commits WHERE room = $1 AND number = ANY($2)";

/// A table of a database.
pub(crate) struct PostgresLog {
    /// One for each host.
    hosts: Vec<Config>,
    /// The host that is tried first.
    host: AtomicUsize,
    tls: Option<MakeRustlsConnect>,
    address: String,
    bucket: String,
    sessions: Mutex<HashMap<Id, Arc<Session>>>,
}

impl std::fmt::Debug for PostgresLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PostgresLog({}, {})", self.address, self.bucket)
    }
}

/// A connection.
struct Session {
    client: Client,
    task: JoinHandle<()>,
    statements: OnceCell<Statements>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Statements {
    create: Statement,
    get: Statement,
    list: Statement,
    delete: Statement,
}

impl Session {
    async fn statements(&self) -> Result<&Statements, Error> {
        let prepared = self.statements.get_or_try_init(|| async {
            Ok(Statements {
                create: self.client.prepare(CREATE).await?,
                get: self.client.prepare(GET).await?,
                list: self.client.prepare(LIST).await?,
                delete: self.client.prepare(DELETE).await?,
            })
        });
        prepared.await
    }
}

/// A session in use. It is dropped from the log unless the server has answered.
struct Use<'a> {
    log: &'a PostgresLog,
    runtime: Id,
    session: Arc<Session>,
    answered: bool,
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut sessions = self.log.sessions.lock();
            if sessions
                .get(&self.runtime)
                .is_some_and(|s| Arc::ptr_eq(s, &self.session))
            {
                sessions.remove(&self.runtime);
            }
        }
    }
}

impl Use<'_> {
    fn end<T>(mut self, result: Result<T, Error>) -> Result<T, LogError> {
        self.answered = result.is_ok();
        result.map_err(|e| failed(&e))
    }
}

fn failed(error: &Error) -> LogError {
    let words = words(error);
    let Some(code) = error.code().map(|state| state.code()) else {
        return LogError::Unanswered(words);
    };
    match (&code[..2], code) {
        (_, "42P01") => LogError::Refused(
            io::ErrorKind::NotFound,
            format!("there is no table {TABLE}: no room was created with this log"),
        ),
        ("28", _) | (_, "42501") => LogError::Forbidden(words),
        ("3D" | "42" | "22" | "0A", _) => LogError::Refused(io::ErrorKind::InvalidInput, words),
        _ => LogError::Unanswered(words),
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A place without the options of TLS, and those: `sslmode`, and files.
fn split_tls(text: &str) -> io::Result<(String, Option<&str>, Files)> {
    let (place, options) = text.split_once('?').unwrap_or((text, ""));
    let (files, others) = Files::split(&certificates::POSTGRES, options)?;
    let (modes, others): (Vec<&str>, Vec<&str>) = others
        .into_iter()
        .partition(|option| option.starts_with("sslmode="));
    let mode = modes.last().map(|mode| &mode["sslmode=".len()..]);
    Ok((format!("{place}?{}", others.join("&")), mode, files))
}

/// The files that a place names.
pub(crate) fn files(text: &str) -> io::Result<Files> {
    split_tls(text).map(|(_, _, files)| files)
}

fn is_near(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address = name.parse().map(|ip: std::net::IpAddr| ip.is_loopback());
            address.unwrap_or(name == "localhost")
        }
        Host::Unix(_) => true,
    }
}

/// Whether a place means something to this engine.
pub(crate) fn check(text: &str) -> io::Result<()> {
    settings(text).map(drop)
}

/// What a place says, and certificates and keys where it is reached over TLS.
fn settings(text: &str) -> io::Result<(Config, Option<Files>)> {
    let (text, mode, files) = split_tls(text)?;
    let is_named = !files.is_empty();
    let mut config: Config = text.parse().map_err(|_| {
        invalid(
            "the place of the PostgreSQL log is malformed, or has an option that is not known"
                .into(),
        )
    })?;
    if config.get_hosts().is_empty() {
        config.host(SOCKETS);
    }
    let is_near = config.get_hosts().iter().all(is_near);
    let has_tls = match mode {
        Some("disable") => false,
        Some("require" | "verify-full") => true,
        None => is_named || !is_near,
        Some(_) => {
            return Err(invalid(
                "sslmode of a PostgreSQL log is require (certificate and name are checked) or disable".into(),
            ));
        }
    };
    Ok((config, has_tls.then_some(files)))
}

/// What a place says, for each of its hosts alone.
fn each_host(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (
        config.get_hosts(),
        config.get_hostaddrs(),
        config.get_ports(),
    );
    let one = |at: usize| {
        let mut one = Config::new();
        match hosts.get(at) {
            Some(Host::Tcp(name)) => one.host(name),
            Some(Host::Unix(path)) => one.host_path(path),
            None => &mut one,
        };
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            one.port(*port);
        }
        if let Some(user) = config.get_user() {
            one.user(user);
        }
        if let Some(password) = config.get_password() {
            one.password(password);
        }
        if let Some(database) = config.get_dbname() {
            one.dbname(database);
        }
        if let Some(options) = config.get_options() {
            one.options(options);
        }
        if let Some(name) = config.get_application_name() {
            one.application_name(name);
        }
        if let Some(timeout) = config.get_connect_timeout() {
            one.connect_timeout(*timeout);
        }
        if let Some(timeout) = config.get_tcp_user_timeout() {
            one.tcp_user_timeout(*timeout);
        }
        if let Some(interval) = config.get_keepalives_interval() {
            one.keepalives_interval(interval);
        }
        if let Some(retries) = config.get_keepalives_retries() {
            one.keepalives_retries(retries);
        }
        one.keepalives(config.get_keepalives())
            .keepalives_idle(config.get_keepalives_idle())
            .ssl_mode(config.get_ssl_mode())
            .ssl_negotiation(config.get_ssl_negotiation())
            .channel_binding(config.get_channel_binding())
            .target_session_attrs(config.get_target_session_attrs());
        one
    };
    (0..hosts.len().max(addresses.len())).map(one).collect()
}

impl PostgresLog {
    pub(crate) fn new(
        text: &str,
        address: String,
        password: Option<&str>,
        bucket: &str,
    ) -> io::Result<Self> {
        let (mut config, files) = settings(text)?;
        let files = files.map(|files| {
            files.or_variables(&certificates::POSTGRES, |name| std::env::var_os(name))
        });
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        if config.get_user().is_none()
            && let Some(user) = variable("PGUSER")
        {
            config.user(user);
        }
        let password = password.map(str::to_owned);
        if let Some(password) = password
            .or_else(|| variable("PGPASSWORD"))
            .or_else(|| remembered(&config))
        {
            config.password(password);
        }
        config
            .ssl_mode(match files {
                Some(_) => SslMode::Require,
                None => SslMode::Disable,
            })
            .connect_timeout(CONNECT)
            .application_name("strongroom")
            // Of several hosts, the primary.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNACKNOWLEDGED);
        }
        Ok(Self {
            hosts: each_host(&config),
            host: AtomicUsize::new(0),
            tls: match files {
                Some(files) => Some(MakeRustlsConnect::new(files.read()?)),
                None => None,
            },
            address,
            bucket: bucket.to_owned(),
            sessions: Mutex::default(),
        })
    }

    async fn use_session(&self) -> Result<Use<'_>, LogError> {
        let runtime = Handle::current().id();
        let known = self.sessions.lock().get(&runtime).cloned();
        let session = match known.filter(|session| !session.client.is_closed()) {
            Some(session) => session,
            None => {
                let session = Arc::new(self.connect().await?);
                self.sessions.lock().insert(runtime, session.clone());
                session
            }
        };
        Ok(Use {
            log: self,
            runtime,
            session,
            answered: false,
        })
    }

    /// Connects to the first host that accepts writes, the last one of these first.
    async fn connect(&self) -> Result<Session, LogError> {
        let first = self.host.load(Ordering::Relaxed);
        let limit = match self.hosts.len() {
            1 => TRY,
            _ => CONNECT,
        };
        let mut last = None;
        for at in (first..first + self.hosts.len()).map(|at| at % self.hosts.len()) {
            match timeout(limit, self.connect_to(&self.hosts[at])).await {
                Ok(Ok(session)) => {
                    self.host.store(at, Ordering::Relaxed);
                    return Ok(session);
                }
                Ok(Err(e)) => last = Some(e),
                Err(_) => last = Some(LogError::Unanswered("no answer".into())),
            }
        }
        Err(last.expect("a place has a host"))
    }

    async fn connect_to(&self, host: &Config) -> Result<Session, LogError> {
        let (client, task) = match &self.tls {
            Some(tls) => {
                let connected = host.connect(tls.clone()).await;
                let (client, connection) = connected.map_err(|e| failed(&e))?;
                (client, tokio::spawn(async move { drop(connection.await) }))
            }
            None => {
                let connected = host.connect(NoTls).await;
                let (client, connection) = connected.map_err(|e| failed(&e))?;
                (client, tokio::spawn(async move { drop(connection.await) }))
            }
        };
        let session = Session {
            client,
            task,
            statements: OnceCell::new(),
        };
        let settings = "SELECT current_setting('fsync'), current_setting('synchronous_commit')";
        let settings = session.client.query_one(settings, &[]).await;
        let settings = settings.map_err(|e| failed(&e))?;
        if settings.get::<_, &str>(0) == "off" {
            return Err(LogError::Refused(
                io::ErrorKind::Unsupported,
                "the server runs with fsync = off: what it acknowledges can be lost".into(),
            ));
        }
        if !["on", "remote_apply"].contains(&settings.get(1)) {
            let raised = session.client.batch_execute("SET synchronous_commit = on");
            raised.await.map_err(|e| failed(&e))?;
        }
        Ok(session)
    }

    fn row(&self, room: &str, number: u64) -> Result<(String, i64), LogError> {
        let number = i64::try_from(number).map_err(|_| {
            LogError::Refused(io::ErrorKind::InvalidInput, "too many commits".into())
        })?;
        Ok((format!("{}/{room}", self.bucket), number))
    }
}

#[async_trait]
impl CommitLog for PostgresLog {
    fn address(&self) -> Option<String> {
        Some(self.address.clone())
    }

    fn record_max(&self) -> u64 {
        RECORD_MAX
    }

    fn is_driven_by_waiter(&self) -> bool {
        true
    }

    async fn prepare(&self) -> Result<(), LogError> {
        let used = self.use_session().await?;
        let there = "SELECT to_regclass('strongroom_commits') IS NOT NULL";
        let done = async {
            if used.session.client.query_one(there, &[]).await?.get(0) {
                return Ok(());
            }
            match used.session.client.batch_execute(CREATE_TABLE).await {
                // Another room's creation was faster.
                Err(e) if ["42P07", "23505"].contains(&e.code().map_or("", |c| c.code())) => Ok(()),
                other => other,
            }
        };
        let done = done.await;
        used.end(done)
    }

    async fn create(
        &self,
        room: &str,
        number: u64,
        record: Bytes,
        previous: &[u8],
    ) -> Result<Created, LogError> {
        let (room, row) = self.row(room, number)?;
        let used = self.use_session().await?;
        let done = async {
            let (client, statements) = (&used.session.client, used.session.statements().await?);
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
                [&room, &row, &&record[..], &previous];
            if client.execute(&statements.create, &params).await? == 1 {
                return Ok(Some(Created::Ours));
            }
            let there = client.query_opt(&statements.get, &[&room, &row]).await?;
            Ok(there.map(|_| Created::Taken))
        };
        let done = done.await;
        used.end(done)?.ok_or_else(|| lost(number))
    }

    async fn get(&self, room: &str, number: u64) -> Result<Option<Bytes>, LogError> {
        let (room, number) = self.row(room, number)?;
        let used = self.use_session().await?;
        let done = async {
            let statement = &used.session.statements().await?.get;
            let client = &used.session.client;
            let row = client.query_opt(statement, &[&room, &number]).await?;
            Ok(row.map(|row| Bytes::from(row.get::<_, Vec<u8>>(0))))
        };
        let done = done.await;
        used.end(done)
    }

    async fn list(&self, room: &str, after: u64) -> Result<Vec<u64>, LogError> {
        let (room, after) = self.row(room, after)?;
        let used = self.use_session().await?;
        let done = async {
            let statement = &used.session.statements().await?.list;
            let rows = used
                .session
                .client
                .query(statement, &[&room, &after])
                .await?;
            Ok(rows.iter().map(|row| row.get::<_, i64>(0) as u64).collect())
        };
        let done = done.await;
        used.end(done)
    }

    async fn delete(&self, room: &str, numbers: &[u64]) -> Result<(), LogError> {
        let (room, _) = self.row(room, 0)?;
        let numbers: Vec<i64> = numbers.iter().map(|number| *number as i64).collect();
        let used = self.use_session().await?;
        let done = async {
            let statement = &used.session.statements().await?.delete;
            used.session
                .client
                .execute(statement, &[&room, &numbers])
                .await?;
            Ok(())
        };
        let done = done.await;
        used.end(done)
    }
}

/// The password of a file like libpq's: `$PGPASSFILE`, else `~/.pgpass`.
fn remembered(config: &Config) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let path = password_file()?;
    if std::fs::metadata(&path).ok()?.mode() & 0o077 != 0 {
        tracing::warn!(
            "{}: not used, because others may read it: chmod 600",
            path.display()
        );
        return None;
    }
    let text = std::fs::read_to_string(&path).ok()?;
    let user = config
        .get_user()
        .map(str::to_owned)
        .or_else(|| std::env::var("USER").ok())?;
    let database = config.get_dbname().unwrap_or(&user);
    let hosts = config.get_hosts().iter().enumerate();
    hosts
        .filter_map(|(at, host)| {
            let ports = config.get_ports();
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
            let host = match host {
                Host::Tcp(name) => name,
                Host::Unix(_) => "localhost",
            };
            password_in(&text, [host, &port.to_string(), database, &user])
        })
        .next()
}

/// The file with passwords that libpq would read.
fn password_file() -> Option<PathBuf> {
    let given = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))
}

/// Of `host:port:database:user:password`, the first line that fits; `*` fits all, and a backslash keeps `:` and itself from meaning anything.
fn password_in(text: &str, wanted: [&str; 4]) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let [host, port, database, user, password] = <[String; 5]>::try_from(fields).ok()?;
        let found = [host, port, database, user];
        let mut pairs = found.iter().zip(wanted);
        pairs
            .all(|(found, wanted)| found == "*" || found == wanted)
            .then_some(password)
    })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("one").extend(letters.next()),
            letter => fields.last_mut().expect("one").push(letter),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# a:1:b:c:no\nother:5432:*:*:no\ndb:5433:rooms:ada:p\\:w\\\\\n*:*:*:ada:last\n";
        let password = |host| password_in(text, [host, "5433", "rooms", "ada"]);
        assert_eq!(password("db").as_deref(), Some("p:w\\"));
        assert_eq!(password("x").as_deref(), Some("last"));
        assert_eq!(password_in(text, ["x", "1", "rooms", "eve"]), None);
    }

    #[test]
    fn only_what_is_near_or_said_so_goes_without_tls() {
        let tls = |text: &str| {
            PostgresLog::new(text, String::new(), None, "b").map(|log| log.tls.is_some())
        };
        assert!(tls("postgres://db.example/rooms").unwrap());
        assert!(tls("postgres://localhost,db.example/rooms").unwrap());
        assert!(tls("postgres://127.0.0.1/rooms?sslmode=require").unwrap());
        assert!(!tls("postgres://127.0.0.1:5433/rooms").unwrap());
        assert!(!tls("postgres:///rooms?host=/tmp&port=1").unwrap());
        assert!(!tls("postgres://db.example/rooms?sslmode=disable").unwrap());
        assert!(tls("postgres://db.example/rooms?sslmode=prefer").is_err());
    }
}
