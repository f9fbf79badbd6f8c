//! Asking the person at the terminal: passphrases without echo, and what age's plugins want to know.
//!
//! Invariant: nothing is asked where nobody sits; then the answer is "none", never a guess.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use seal::Secret;
use seal::age::secrecy::SecretString;

use crate::error::{Error, Result};
use crate::output::to_stderr;

/// Below this many characters a new passphrase draws a warning.
const SHORT_PASSPHRASE: usize = 12;

/// Whether a person can be asked.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks for the passphrase of something.
pub(crate) fn passphrase(of: &str) -> Result<Secret> {
    let typed = rpassword::prompt_password(format!("Passphrase for {of}: ")).map_err(|e| {
        Error::failed(format!(
            "the passphrase could not be read from the terminal: {e}"
        ))
    })?;
    not_empty(Secret::from(typed))
}

/// Asks for a new passphrase, twice.
pub(crate) fn new_passphrase(of: &str) -> Result<Secret> {
    loop {
        let first = not_empty(Secret::from(
            rpassword::prompt_password(format!("New passphrase for {of}: ")).map_err(|e| {
                Error::failed(format!(
                    "the passphrase could not be read from the terminal: {e}"
                ))
            })?,
        ))?;
        warn_if_short(&first);
        let second = Secret::from(rpassword::prompt_password("The same again: ").map_err(|e| {
            Error::failed(format!(
                "the passphrase could not be read from the terminal: {e}"
            ))
        })?);
        if first == second {
            return Ok(first);
        }
        to_stderr("The two differ; once more, please.");
    }
}

/// Warns of a passphrase that is quickly guessed.
pub(crate) fn warn_if_short(secret: &Secret) {
    let characters = String::from_utf8_lossy(secret.expose()).chars().count();
    if characters < SHORT_PASSPHRASE {
        to_stderr(format_args!(
            "warning: a passphrase of {characters} characters can be guessed by anyone with the room's directory; \
             several words in a row are safer"
        ));
    }
}

/// Refuses an empty passphrase, which is nearly always an accident.
pub(crate) fn not_empty(secret: Secret) -> Result<Secret> {
    if secret.expose().is_empty() {
        return Err(Error::usage("the passphrase is empty"));
    }
    Ok(secret)
}

/// The variable that says how many seconds a plugin is waited for; 0: without limit.
const PLUGIN_TIMEOUT: &str = "STRONGROOM_PLUGIN_TIMEOUT";

/// How long an age plugin's program is waited for. Without limit where somebody may be about to touch its device.
pub(crate) fn plugin_limit() -> Result<Option<Duration>> {
    let Some(given) = std::env::var_os(PLUGIN_TIMEOUT) else {
        return Ok((!terminal_can_be_opened()).then_some(seal::UNATTENDED_PLUGIN));
    };
    let seconds = given.to_str().and_then(|text| text.parse().ok());
    let seconds: u64 = seconds.ok_or_else(|| {
        Error::usage(format!(
            "{PLUGIN_TIMEOUT}: not a number of seconds; 0 waits without limit"
        ))
    })?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// How age's plugins and encrypted identities reach the person at the terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal;

impl seal::age::Callbacks for Terminal {
    fn display_message(&self, message: &str) {
        to_stderr(message);
    }

    fn confirm(&self, message: &str, yes: &str, no: Option<&str>) -> Option<bool> {
        if !terminal_can_be_opened() {
            return None;
        }
        let no = no.unwrap_or("cancel");
        let answer = ask_visibly(&format!("{message} (y: {yes}, n: {no}) "))?;
        Some(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn request_public_string(&self, description: &str) -> Option<String> {
        ask_visibly(&format!("{description}: "))
            .map(|answer| answer.trim_end_matches('\n').to_owned())
    }

    fn request_passphrase(&self, description: &str) -> Option<SecretString> {
        if !terminal_can_be_opened() {
            return None;
        }
        rpassword::prompt_password(format!("{description}: "))
            .ok()
            .map(SecretString::from)
    }
}

// Standard input may be the pipe that brought the credential, so the controlling terminal itself is asked.
fn terminal_can_be_opened() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

fn ask_visibly(question: &str) -> Option<String> {
    let mut terminal = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    terminal.write_all(question.as_bytes()).ok()?;
    let mut answer = String::new();
    std::io::BufReader::new(terminal)
        .read_line(&mut answer)
        .ok()?;
    Some(answer)
}
