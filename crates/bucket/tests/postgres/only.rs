//! What PostgreSQL's sessions, crashes and standbys do to a writer.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::both::{goes_on, knows_certificates};
use crate::engine::ENGINE;
use crate::engines::Postgres;
use crate::made::{create, open, options, read, write};
use crate::store::Store;

const END_SESSIONS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'strongroom'";

#[test]
fn a_writer_goes_on_when_its_sessions_end_again_and_again() {
    let server = Postgres::new("");
    goes_on(server.place(), || {
        for _ in 0..20 {
            server.sql(END_SESSIONS);
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn a_writer_goes_on_after_a_crash_of_the_server() {
    let mut server = Postgres::new("");
    goes_on(server.place(), || {
        server.crash();
        server.start();
    });
}

/// A server with a synchronous standby, and the place that names both.
fn primary_and_standby() -> (Postgres, Postgres, String) {
    let primary = Postgres::new("");
    let standby = Postgres::standby_of(&primary, "second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.sql("SELECT pg_reload_conf()");
    let place = format!(
        "postgres://rooms@127.0.0.1:{},127.0.0.1:{}/postgres",
        primary.port, standby.port
    );
    (primary, standby, place)
}

/// The primary dies; its synchronous standby becomes the primary. The writer knows both.
#[test]
fn a_writer_goes_on_with_the_standby_that_is_promoted() {
    let (mut primary, standby, place) = primary_and_standby();
    goes_on(place, || {
        primary.crash();
        standby.promote();
    });
}

/// The primary hangs: it accepts connections and never says a word. Its standby, behind it in the place, was never asked, and the writer ended after
/// its time was up.
#[test]
fn a_writer_goes_on_with_the_standby_of_a_primary_that_hangs() {
    let (primary, standby, place) = primary_and_standby();
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        goes_on(place, || {
            primary.pause();
            standby.promote();
        });
    }));
    // Its end would wait for it.
    primary.go_on();
    done.unwrap();
}

/// A transaction whose session ends while it waits for a standby can be seen, and no standby has it. Seeing it is no acknowledgement.
#[test]
fn what_no_standby_has_is_not_acknowledged_however_often_the_session_ends() {
    // The server's own settings would not wait.
    let server = Postgres::new("synchronous_commit = local");
    let (store, dir) = (
        Store::with_log(Some(server.place())),
        tempfile::tempdir().unwrap(),
    );
    let mut options = options();
    options.timeout = Duration::from_secs(4);
    let storage = create(&store, dir.path(), options.clone()).unwrap();
    write(&storage, "f", b"x").unwrap();
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
    server.sql("SELECT pg_reload_conf()");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                server.sql(&format!("{END_SESSIONS} AND wait_event = 'SyncRep'"));
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let ended = write(&storage, "g", b"y");
        is_over.store(true, Ordering::SeqCst);
        ended.unwrap_err();
    });
    // It was there to be seen.
    assert_eq!(
        server
            .sql("SELECT max(number) FROM strongroom_commits")
            .trim(),
        "3"
    );
    drop(storage);
    server.sql("ALTER SYSTEM RESET synchronous_standby_names");
    server.sql("SELECT pg_reload_conf()");
    let storage = open(&store, dir.path(), options).unwrap();
    assert_eq!(read(&storage, "f").unwrap(), b"x");
}

#[test]
fn a_server_that_does_not_sync_is_refused() {
    let server = Postgres::new("fsync = off");
    let (store, dir) = (
        Store::with_log(Some(server.place())),
        tempfile::tempdir().unwrap(),
    );
    let refused = create(&store, dir.path(), options()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("fsync = off"), "{refused}");
}

#[test]
fn a_server_without_tls_and_a_wrong_password_are_refused_in_words() {
    let server = Postgres::new("");
    server.sql("CREATE ROLE ada LOGIN PASSWORD 's3cret'");
    server.put(
        "data/pg_hba.conf",
        "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
    );
    server.sql("SELECT pg_reload_conf()");
    let place = |password: &str, options: &str| {
        Some(format!(
            "postgres://ada:{password}@127.0.0.1:{}/postgres{options}",
            server.port
        ))
    };
    let mut options = options();
    options.timeout = Duration::from_secs(4);
    for (place, why) in [
        (place("wr0ng", ""), "password authentication failed"),
        (place("s3cret", "?sslmode=require"), "TLS"),
        // Right, and no right to create the table.
        (place("s3cret", ""), "permission denied"),
    ] {
        let (store, dir) = (Store::with_log(place), tempfile::tempdir().unwrap());
        let refused = create(&store, dir.path(), options.clone())
            .unwrap_err()
            .to_string();
        assert!(refused.contains(why), "{refused}");
        assert!(
            !refused.contains("wr0ng") && !refused.contains("s3cret"),
            "{refused}"
        );
    }
    server.sql("GRANT CREATE ON SCHEMA public TO ada");
    let (store, dir) = (
        Store::with_log(place("s3cret", "")),
        tempfile::tempdir().unwrap(),
    );
    create(&store, dir.path(), options).unwrap();
}

#[test]
fn small_records_are_kept_out_of_the_table_for_large_values() {
    let (store, dir) = (Store::new(), tempfile::tempdir().unwrap());
    let storage = create(&store, dir.path(), options()).unwrap();
    write(&storage, "f", &crate::made::noise(1, 4096)).unwrap();
    let size = ENGINE.sql("SELECT max(pg_column_size(record)) FROM strongroom_commits WHERE length(record) BETWEEN 4096 AND 8000");
    assert!(size.trim().parse::<u64>().unwrap() > 4096, "{size}");
}

#[test]
fn server_and_writers_know_each_other_by_certificates() {
    let (server, dir) = Postgres::with_certificates();
    let place = format!("postgres://rooms@127.0.0.1:{}/postgres", server.port);
    knows_certificates(&place, ["sslrootcert", "sslcert", "sslkey"], &dir);
}
