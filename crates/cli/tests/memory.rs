//! How much memory a request on the control socket takes while it is read, whatever it holds. In a program of its own,
//! with one test: the allocator counts for the whole process.

use peak_alloc::PeakAlloc;
use strongroom_cli::control::{REQUEST_LINE_MAX, parse_request};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The longest line there is, all of it one list of nothings: serde keeps each as a value of its own until it knows
/// what the request is. Only this process's user and root can send it.
const MOST: usize = 48 * REQUEST_LINE_MAX;

fn filled(open: &str, item: &str, close: &str) -> Vec<u8> {
    let times = (REQUEST_LINE_MAX - open.len() - close.len()) / item.len();
    [open, &item.repeat(times), close].concat().into_bytes()
}

#[test]
fn no_request_takes_more_memory_than_some_times_its_line() {
    let recipients = r#"{"op":"add-slot","with":{"kind":"passphrase","secret":"00"},"label":"","new":{"kind":"recipients","recipients":["#;
    let hostile = [
        ("recipients", filled(recipients, r#""","#, r#"""]}}"#), true),
        ("nothings", filled(r#"{"op":"#, "0,", "0}"), false),
        (
            "a list",
            filled(r#"{"more":["#, "0,", r#"0],"op":"status"}"#),
            false,
        ),
        ("lists in lists", filled("", "[", ""), false),
        ("escapes", filled(r#"{"op":""#, r"\u001b", r#""}"#), false),
        ("a length it may not have", vec![b'['; 64 << 20], false),
    ];
    for (what, line, good) in hostile {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let request = parse_request(&line);
        let memory = MEMORY.peak_usage() - before;
        assert_eq!(request.is_ok(), good, "{what}");
        assert!(memory < MOST, "{what}: {memory} bytes");
    }
}
