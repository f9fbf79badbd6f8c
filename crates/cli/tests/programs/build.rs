//! cargo, compiler and linker: many small files, mappings, locks, hard links, and times that decide what is built again.

use std::path::Path;
use std::process::Command;

use super::{mount_again, room_for};

fn cargo(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(args).arg("--offline").current_dir(dir);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // The environment that the cargo of this test sets for its children is not meant for this one.
        if text.starts_with("CARGO_") && text != "CARGO_HOME"
            || text.starts_with("RUSTC")
            || text == "RUSTFLAGS"
        {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {args:?}: {text}");
    text
}

#[test]
fn cargo_builds_and_tests_in_a_room_and_builds_nothing_twice() {
    let Some(s) = room_for(&[]) else { return };
    let work = s.path("mnt/work");
    std::fs::create_dir_all(work.join("src")).unwrap();
    let manifest =
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(work.join("Cargo.toml"), manifest).unwrap();
    for module in 0..20 {
        let text = format!(
            "/// Doubles.\npub fn twice(n: u64) -> u64 {{ n + n + {module} - {module} }}\n"
        );
        std::fs::write(work.join(format!("src/m{module}.rs")), text).unwrap();
    }
    let mut lib: String = (0..20)
        .map(|module| format!("pub mod m{module};\n"))
        .collect();
    lib += "#[test]\nfn doubles() { assert_eq!(m7::twice(21), 42); }\n";
    std::fs::write(work.join("src/lib.rs"), lib).unwrap();
    std::fs::write(
        work.join("src/main.rs"),
        "fn main() { println!(\"{}\", small::m3::twice(21)); }\n",
    )
    .unwrap();

    assert!(cargo(&work, &["test"]).contains("1 passed"));
    assert!(cargo(&work, &["run"]).contains("42"));
    mount_again(&s);
    let again = cargo(&work, &["run"]);
    assert!(
        again.contains("42") && !again.contains("Compiling"),
        "built again though nothing changed: {again}"
    );
    std::fs::write(
        work.join("src/main.rs"),
        "fn main() { println!(\"{}\", small::m3::twice(4)); }\n",
    )
    .unwrap();
    let changed = cargo(&work, &["run"]);
    assert!(
        changed.contains("Compiling") && changed.contains("\n8\n") || changed.starts_with("8\n"),
        "{changed}"
    );
}
