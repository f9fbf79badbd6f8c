//! A network disk whose blocks are in a bucket of a real S3 server (versitygw).

use std::os::unix::process::CommandExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::process::{Process, TIMEOUT};
use crate::common::setting::beside_a_bucket;

const PLACE: &str = "s3://rooms/d1";
/// Longer than a disk relies on what the store said of its writer.
const PROOF: Duration = Duration::from_secs(11);

/// Its last flush asked, and waited for an end that never came: it was ended by force after 50 seconds, with code 1.
#[test]
fn a_disk_that_is_asked_to_stop_after_another_took_its_place_ends_by_itself() {
    beside_a_bucket(|s| {
        let init = ["disk", "init", "--store", PLACE, "--size", "64MiB"];
        s.ok(init.iter().chain(&["--key-out", "d1.key"]));
        let serve = |name: &str, more: &[&str]| {
            let words = ["disk", "serve", "--store", PLACE, "--key", "d1.key"];
            let words = words.iter().chain(&["--listen", "127.0.0.1:0"]);
            let mut command = s.command(words.chain(more));
            // A stopped process of the tests' own group would get SIGHUP where the shell that started them ends.
            command.process_group(0);
            Process::serve(name, command, &s.path(name)).unwrap()
        };
        let mut first = serve("first.log", &[]);
        first.signal(Signal::STOP);
        let second = serve("second.log", &["--take-over", "--cache", "other"]);
        std::thread::sleep(PROOF);
        first.signal(Signal::TERM);
        first.signal(Signal::CONT);
        let ended = first.wait(TIMEOUT).expect("it ends");
        let said = first.said();
        assert_eq!(ended.code(), Some(4), "{said}");
        assert!(said.contains("another writer has taken over"), "{said}");
        assert!(second.stop().success());
    });
}
