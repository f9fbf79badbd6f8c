//! How much memory a header takes before anybody has vouched for it, whatever it asks for. In a program of its own,
//! with one test: the allocator counts for the whole process.

use peak_alloc::PeakAlloc;
use seal::{Credential, Header, HeaderError, NewCredential, Secret, Suite};
use serde_json::{Value, json};
use strongroom_seal as seal;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A list of empty texts takes three bytes for each, 24 in memory, and half as much again while the list grows.
const MOST: usize = 24 * seal::HEADER_LEN_MAX;

/// The most bytes that were in use at once while it ran, beyond those before it.
fn taken<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let value = run();
    (value, MEMORY.peak_usage() - before)
}

fn raw() -> NewCredential {
    NewCredential::RawKey(Secret::from(&[5; 32][..]))
}

fn filled(open: &str, item: &str, close: &str) -> Vec<u8> {
    let times = (seal::HEADER_LEN_MAX - open.len() - close.len() - 1) / item.len();
    // The last comma of a list may stay: what comes before it was taken by then.
    [open, &item.repeat(times), close].concat().into_bytes()
}

#[test]
fn no_header_takes_much_memory_before_it_is_verified() {
    let (header, master) = Header::create(Suite::Aes256Gcm, raw(), "").unwrap();
    let good: Value = serde_json::from_slice(&header.encode(&master)).unwrap();
    let slot = good["body"]["slots"][0].clone();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut file = good.clone();
        change(&mut file["body"]);
        serde_json::to_vec(&file).unwrap()
    };

    // 4 TiB of memory for one slot, more than which no 32 bits can say: refused before it is asked of the machine.
    let dear = with(&|body| {
        body["slots"][0]["kind"] = "passphrase".into();
        body["slots"][0]["argon2id"] = json!({"memory_kib": u32::MAX, "passes": 64, "lanes": 16});
    });
    let (refused, memory) = taken(|| Header::parse(&dear));
    assert!(matches!(refused, Err(HeaderError::Cost { slot: 0, .. })));
    assert!(memory < MOST, "{memory} bytes");

    let slots = format!("{slot},");
    let start = r#"{"body": {"format": 1, "features": ["#;
    let hostile = [
        (
            "slots",
            filled(
                r#"{"body": {"format": 1, "features": [], "slots": ["#,
                &slots,
                "]}}",
            ),
        ),
        ("features", filled(start, r#""","#, r#"""]}}"#)),
        ("nothings", filled(start, "null,", "null]}}")),
        ("lists in lists", filled("", "[", "")),
        ("lists in a list's place", filled(start, "[", "")),
        (
            "escapes",
            filled(r#"{"body": {"format": 1, "suite": ""#, r"\u001b", r#""}}"#),
        ),
        ("fields", filled("{", r#""x": 0,"#, r#""y": 0}"#)),
        ("white space", filled("", " ", "")),
        ("a length it may not have", vec![b'['; 64 << 20]),
    ];
    for (what, bytes) in hostile {
        let (refused, memory) = taken(|| Header::parse(&bytes));
        let error = refused.expect_err(what).to_string();
        assert!(error.len() < 300, "{what}: {error}");
        assert!(memory < MOST, "{what}: {memory} bytes");
    }

    // All the slots a header may have, and a longer age file than any: read, tried, and refused without more.
    let full = with(&|body| {
        let recipients = |id: u32| {
            let mut slot = slot.clone();
            slot["id"] = id.into();
            slot["kind"] = "recipients".into();
            slot["recipients"] = json!(["age1"]);
            slot["age"] = "61".repeat(3500).into();
            slot
        };
        body["slots"] = (0..seal::SLOTS_MAX as u32).map(recipients).collect();
    });
    let (header, memory) = taken(|| Header::parse(&full));
    let header = header.unwrap();
    assert!(memory < MOST, "{memory} bytes");
    let identity = seal::age::x25519::Identity::generate();
    let credential = Credential::Identities(vec![identity.into()]);
    let (refused, memory) = taken(|| header.unlock(&credential));
    assert!(refused.is_err());
    assert!(memory < MOST, "{memory} bytes");
}
