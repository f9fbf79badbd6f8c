//! What a listing with attributes costs: requests to the mount and reads of the catalog, counted. The only test of
//! this program: what counts them is set for the whole process.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::{Mount, ok};
use room::spans;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static CATALOG: AtomicU64 = AtomicU64::new(0);

/// Counts spans. Opening and closing of directories has none.
struct Counter;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == spans::TARGET
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        match span.metadata().name() {
            spans::REQUEST => REQUESTS.fetch_add(1, Ordering::Relaxed),
            spans::CATALOG => CATALOG.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Requests and reads of the catalog while `work` ran.
fn counted(work: impl FnOnce()) -> (u64, u64) {
    let now = || {
        (
            REQUESTS.load(Ordering::Relaxed),
            CATALOG.load(Ordering::Relaxed),
        )
    };
    let before = now();
    work();
    let after = now();
    (after.0 - before.0, after.1 - before.1)
}

/// `ls -l` asked for two attributes of each file, and each first answer read the file's row a second time.
#[test]
fn a_cold_listing_with_attributes_asks_once_a_file_and_reads_the_catalog_once_a_directory() {
    const DIRECTORIES: u64 = 10;
    const FILES: u64 = 50;
    let Some(mount) = Mount::new() else { return };
    ok(
        &mount,
        "for d in 0 1 2 3 4 5 6 7 8 9; do
            mkdir d$d
            for f in 0 1 2 3 4; do touch d$d/${f}0 d$d/${f}1 d$d/${f}2 d$d/${f}3 d$d/${f}4 \
                d$d/${f}5 d$d/${f}6 d$d/${f}7 d$d/${f}8 d$d/${f}9; done
        done",
    );
    let mount = mount.again();
    tracing::subscriber::set_global_default(Counter).unwrap();
    let (requests, reads) = counted(|| {
        let list = ok(&mount, "ls -lR .");
        assert_eq!(
            list.matches("-rw").count() as u64,
            DIRECTORIES * FILES,
            "{list}"
        );
    });
    let cost = format!("{requests} requests and {reads} reads of the catalog");
    println!("{cost}");
    // The access list of each file, and of each directory: that, a default one, the listing and its end, and attributes.
    let most = DIRECTORIES * FILES + (DIRECTORIES + 1) * 8;
    assert!(requests <= most, "{cost}: not {most} requests");
    // One a directory; the room's own threads read and commit meanwhile.
    let most = DIRECTORIES * FILES / 4;
    assert!(reads <= most, "{cost}: not {most} reads");
}
