//! A full room whose snapshots hold space.

use std::fs;
use std::process::Command;

use crate::common::noise;
use crate::common::setting::on_a_disk;

#[test]
fn what_finds_no_space_names_the_snapshots_that_hold_it() {
    let Some(s) = on_a_disk(96) else { return };
    fs::write(s.path("old"), noise(20 << 20, 1)).unwrap();
    s.with_pass(["cp", "old", "room:/old"]);
    s.with_pass(["snapshot", "create", "room", "monday"]);
    s.with_pass(["rm", "room:/old"]);
    fs::create_dir(s.path("more")).unwrap();
    fs::write(s.path("more/file"), noise(90 << 20, 2)).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C")
        .arg(s.path(""))
        .arg("-cf")
        .arg(s.path("more.tar"));
    assert!(tar.arg("more").status().unwrap().success());
    for args in [
        ["import", "more", "room:/more"].as_slice(),
        &["import", "--tar", "more.tar", "room:/tar"],
        &["cp", "-r", "more", "room:/cp"],
    ] {
        let said = s.fails(9, args);
        assert!(
            said.contains("Snapshots hold 20.00 MiB: monday (20.00 MiB alone)"),
            "{args:?}: {said}"
        );
    }
}
