//! Tests that need a process to themselves: where other tests' processor time must not be in their own.

/// Runs one ignored test, by its full name, in a process of its own.
#[track_caller]
pub(crate) fn in_a_process_of_its_own(test: &str) {
    let done = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored"])
        .output()
        .expect("it runs");
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && out.contains("1 passed"), "{out}");
}
