//! The systemd units of the project as systemd reads them: no unknown word, and no more rights than they need.
#![allow(missing_docs)]

use std::path::Path;
use std::process::Command;

/// systemd's own measure, 0 to 100, of what a service could do wrong.
const EXPOSURE_MAX: &str = "20";

#[test]
fn systemd_takes_the_units_and_finds_them_confined() {
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let dir = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    // All of them first: a timer is read with its service.
    for entry in std::fs::read_dir(units).unwrap() {
        let entry = entry.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        // The program need not be installed here; an instance has a name.
        assert_eq!(
            name.ends_with(".service"),
            text.contains("ExecStart=/usr/bin/strongroom ")
        );
        let text = text.replace("/usr/bin/strongroom", "/bin/true");
        std::fs::write(dir.path().join(name.replace('@', "@one")), &text).unwrap();
        std::fs::write(dir.path().join(&name), &text).unwrap();
        names.push(name);
    }
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let unit = dir.path().join(name.replace('@', "@one"));
        let verify = ["verify", "--man=no"];
        let security = ["security", "--offline=true", "--threshold", EXPOSURE_MAX];
        // These run for a user: one starts fusermount3 with root's rights, the other ssh with the user's keys.
        let for_user = ["strongroom-lock@.service", "strongroom-replicate@.service"];
        let is_server = name.ends_with(".service") && !for_user.contains(&&*name);
        for arguments in [Some(&verify[..]), is_server.then_some(&security[..])] {
            let Some(arguments) = arguments else { continue };
            let output = Command::new("systemd-analyze")
                .args(arguments)
                .arg(&unit)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && said.is_empty(),
                "{name}: {arguments:?}: {said}{}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    }
}
