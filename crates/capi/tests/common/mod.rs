//! C programs, compiled and run against a library of this build.

// Each test uses a part of it.
#![allow(dead_code)]

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Flags under which every program compiles.
const STRICT: [&str; 6] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-O1"];
/// No program of these runs longer, whatever it waits for.
const SECONDS_MAX: &str = "600";

/// A directory to compile and run in; it is gone with this.
pub(crate) struct Work {
    dir: TempDir,
    library: String,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file that cargo built beside this test: it builds the library in every form that Cargo.toml names.
pub(crate) fn built(name: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let file = test.parent().unwrap().join(name);
    assert!(file.exists(), "cargo built no {}", file.display());
    file
}

/// A line beside the test's own output, which is shown also when it passes.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether a program is there to be run.
pub(crate) fn have(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

impl Work {
    /// With the shared library `name` under the name by which programs ask for it.
    pub(crate) fn with(name: &str, soname: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        symlink(built(name), dir.path().join(soname)).unwrap();
        Self {
            dir,
            library: soname.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A new empty directory here.
    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        let dir = self.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    /// Compiles and links; returns the program.
    pub(crate) fn compile(
        &self,
        sources: &[PathBuf],
        include: &Path,
        flags: &[&str],
        name: &str,
    ) -> PathBuf {
        let program = self.path().join(name);
        let mut cc = Command::new("cc");
        cc.args(STRICT)
            .arg("-D_GNU_SOURCE")
            .args(flags)
            .arg("-I")
            .arg(include)
            .args(sources)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(self.path())
            .arg(format!("-l:{}", self.library))
            .arg(format!("-Wl,-rpath,{}", self.path().display()))
            .arg("-lpthread");
        succeeded(&mut cc);
        program
    }

    /// What runs a program here, with nothing of the user's.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg(SECONDS_MAX)
            .arg(program)
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("state"));
        command
    }
}

/// Runs to success, or fails with all that was said.
pub(crate) fn succeeded(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        output_of(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How a program ended, and what it said.
pub(crate) fn output_of(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
