//! Asking the person at the terminal: passphrases without echo, and what age's plugins want to know.
//!
//! Invariant: nothing is asked where nobody sits; then the answer is "none", never a guess.

use std::fs::File;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use seal::Secret;
use seal::age::secrecy::SecretString;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::stderr::to_stderr;

/// Below this many characters a new passphrase draws a warning.
const SHORT_PASSPHRASE: usize = 12;

/// Whether a person can be asked.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks for the passphrase of something.
pub(crate) fn passphrase(of: &str) -> Result<Secret> {
    not_empty(typed(&format!("Passphrase for {of}: "))?)
}

fn typed(prompt: &str) -> Result<Secret> {
    let typed = hidden(prompt).map_err(|e| match e.kind() {
        ErrorKind::Interrupted => Error::said(Exit::Interrupted, "stopped"),
        _ => Error::failed(format!(
            "the passphrase could not be read from the terminal: {e}"
        )),
    });
    typed.map(Secret::from)
}

/// A line that is typed at the terminal without being shown. Ctrl-C is an error of the kind `Interrupted`.
fn hidden(prompt: &str) -> io::Result<String> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let shown = tcgetattr(&terminal)?;
    let mut quiet = shown.clone();
    quiet.local_modes -=
        LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
    quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
    quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&terminal, OptionalActions::Now, &quiet)?;
    let typed = terminal.write_all(prompt.as_bytes()).and_then(|()| {
        let keys = Keys(terminal.try_clone()?);
        let config = rpassword::ConfigBuilder::new().input_reader(keys);
        rpassword::read_password_with_config(config.output_discard().build())
    });
    // However it ended, what is typed next is shown again.
    tcsetattr(&terminal, OptionalActions::Now, &shown)?;
    terminal.write_all(b"\n")?;
    typed
}

/// What is typed. Where the terminal is its own, `rpassword` ends the process at Ctrl-C, and leaves it without echo.
struct Keys(File);

impl Read for Keys {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buf)?;
        match buf[..read].contains(&b'\x03') {
            true => Err(ErrorKind::Interrupted.into()),
            false => Ok(read),
        }
    }
}

/// Asks for a new passphrase, twice.
pub(crate) fn new_passphrase(of: &str) -> Result<Secret> {
    loop {
        let first = not_empty(typed(&format!("New passphrase for {of}: "))?)?;
        warn_if_short(&first);
        let second = typed("The same again: ")?;
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
        hidden(&format!("{description}: "))
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
