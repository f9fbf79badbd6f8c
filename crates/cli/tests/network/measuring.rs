//! `bench small-files` of shared storage: every published sub-operation is met.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::cluster::{Cluster, Shape, client};

#[test]
fn small_files_have_every_published_sub_operation() {
    let Some(cluster) = Cluster::start(Shape {
        protection: "private",
        ..Shape::small()
    }) else {
        return;
    };
    let shared = cluster.mountpoint(0);
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(cluster.path("bench")).unwrap();
    let store = format!(
        "private,{},ada.identity,bob.identity",
        cluster.server_address()
    );
    let mut arguments = vec!["--json", "bench", "small-files", "bench", "--disks", "."];
    arguments.extend(["--files", "4", "--seed", "7", "--shared", &store]);
    let done = cluster.command(&client(0), &arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    // Other tests use the disk and the host its processors: nothing else makes a row INVALID here.
    let by_others = |row: &Value| {
        let text = row.to_string();
        text.contains("\"device_shared\"") || text.contains("\"stolen_time\"")
    };
    let valid = |row: &Value| row["verdict"]["invalid"] == false;
    for row in rows {
        assert!(valid(row) || by_others(row), "{row}");
    }
    let all_valid = rows.iter().all(valid);
    for row in report["tables"][0]["rows"].as_array().unwrap() {
        let cell = row["cells"][1].as_str().unwrap();
        let figures: Vec<_> = cell.split(" / ").collect();
        let is_figure = |it: &str| it.replace('−', "-").parse::<f64>().is_ok();
        assert!(
            figures
                .iter()
                .all(|it| is_figure(it) || !all_valid && *it == "INVALID"),
            "{row}"
        );
    }
    // What the servers do is the store's own doing.
    for server in [cluster.server().id(), cluster.disk(0).id()] {
        let named = format!("process {server} ");
        assert!(!report["rows"].to_string().contains(&named));
    }
    let parts = report["parts"].as_array().unwrap();
    for paired in ["chmod with revocation", "chmod beside revocations"] {
        let of = parts.iter().find(|of| of["operation"] == paired).unwrap();
        assert_eq!(of["count"], 2, "{of}");
    }
    let revoked: Vec<_> = parts
        .iter()
        .filter(|of| of["operation"] == "read after revocation")
        .flat_map(|of| of["parts"].as_array().unwrap())
        .filter(|part| part["name"] == "revoked request")
        .map(|part| part["times"].as_f64().unwrap())
        .collect();
    assert_eq!(revoked, [1.0]);
    assert_eq!(fs::read_dir(cluster.path("bench")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
}
