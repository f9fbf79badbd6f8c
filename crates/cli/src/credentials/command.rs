//! A passphrase that a program prints: a keyring, a password manager, or what a TPM unseals.
//!
//! 1. The program runs once, however many rooms are opened with what it printed.
//! 2. A message says how it ended, never its command line or what it printed.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use seal::Secret;

use super::SMALL_FILE_MAX;
use crate::ask;
use crate::error::{Error, Result};

/// What the program of `--passphrase-command` printed, once it ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Printed(OnceLock<Secret>);

impl Printed {
    /// What `command` printed; runs it unless it ran before.
    pub(crate) fn by(&self, command: &str) -> Result<Secret> {
        if let Some(secret) = self.0.get() {
            return Ok(secret.clone());
        }
        let secret = run(command)?;
        Ok(self.0.get_or_init(|| secret).clone())
    }
}

/// Runs `command` with `sh -c` and returns what it prints, at most 64 KiB; one trailing newline is stripped. It gets no standard
/// input, which may bring data; its messages go to standard error.
pub(crate) fn run(command: &str) -> Result<Secret> {
    let failed = |problem: &dyn std::fmt::Display| {
        Error::failed(format!("the program that prints the passphrase {problem}"))
    };
    let not_run = |e: std::io::Error| failed(&format!("could not be run: {e}"));
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(not_run)?;
    // The buffer never moves, so no copy of the secret is left behind.
    let mut bytes = zeroize::Zeroizing::new(Vec::with_capacity(SMALL_FILE_MAX as usize + 1));
    // The pipe closes after this, which ends a program that prints more.
    let read = match child.stdout.take() {
        Some(output) => output.take(SMALL_FILE_MAX + 1).read_to_end(&mut bytes),
        None => Ok(0),
    };
    let status = child.wait().map_err(not_run)?;
    read.map_err(not_run)?;
    if bytes.len() as u64 > SMALL_FILE_MAX {
        return Err(failed(&"printed more than 64 KiB"));
    }
    if !status.success() {
        return Err(failed(&format!("failed ({status})")));
    }
    if bytes.is_empty() {
        return Err(failed(&"printed nothing"));
    }
    ask::not_empty(Secret::from(bytes.strip_suffix(b"\n").unwrap_or(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_newline_is_stripped_and_nothing_else() {
        assert_eq!(run("printf ' a b\\n\\n'").unwrap().expose(), b" a b\n");
        assert_eq!(run("printf x").unwrap().expose(), b"x");
    }

    #[test]
    fn a_program_that_fails_is_reported_without_what_it_printed() {
        for (command, expected) in [
            ("echo secret; exit 3", "exit status: 3"),
            ("kill -9 $$", "signal: 9"),
            (":", "printed nothing"),
            ("echo", "empty"),
            ("head -c 70000 /dev/zero", "more than 64 KiB"),
            ("no-such-program 2>/dev/null", "exit status: 127"),
        ] {
            let message = run(command).unwrap_err().to_string();
            assert!(message.contains(expected), "{command}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn it_runs_once_and_gets_no_standard_input() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let command = format!("cat; echo >> '{0}'; wc -l < '{0}'", mark.display());
        let printed = Printed::default();
        assert_eq!(printed.by(&command).unwrap().expose().trim_ascii(), b"1");
        assert_eq!(printed.by(&command).unwrap().expose().trim_ascii(), b"1");
    }
}
