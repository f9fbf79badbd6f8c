//! Settings from a file, the environment and the command line.
//!
//! 1. A server's options, as clap knows them, are its settings: the key in the file is the option's long name, the variable
//!    `STRONGROOM_`, the server's word, `_` and that name in capitals (`STRONGROOM_DISK_LISTEN`). Nothing is declared twice.
//! 2. What is on the command line counts; what is not there comes from the environment, then from the file, then from the
//!    option's own default.
//! 3. Every key is one that the server has, every value one that its option takes; a refusal names the file or variable, and
//!    the key.
//!
//! It deliberately does not know which settings there are, except those of every server ([`Common`]).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};

use crate::address::HealthAddress;
use crate::logs::LogFormat;

/// Most bytes of a file of settings.
const FILE_MAX: u64 = 1 << 20;
/// The option that names the file.
const CONFIG: &str = "config";

/// The settings of every server.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct Common {
    /// A file of settings (TOML): each option here, by its long name; options and variables STRONGROOM_… count more
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Answer /healthz, /readyz and /metrics over HTTP: at this port of this machine only, or at this address and port
    #[arg(long, value_name = "ADDRESS")]
    pub health: Option<HealthAddress>,
    /// How the log is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// A command that is a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerCommand {
    /// Its words on the command line, as in `["disk", "serve"]`.
    pub path: &'static [&'static str],
    /// The word in the names of its variables, as in `disk`.
    pub word: &'static str,
}

/// Why settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("the settings in {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no TOML.
    #[error("the settings in {} are not TOML: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A key that nobody knows.
    #[error("{place}: there is no setting '{key}'; there are: {known}")]
    Unknown {
        /// The file or the variable.
        place: String,
        /// The key.
        key: String,
        /// All there are.
        known: String,
    },
    /// A value that is none of its key.
    #[error("{place}: '{key}': {why}")]
    Value {
        /// The file or the variable.
        place: String,
        /// The key.
        key: String,
        /// What is wrong.
        why: String,
    },
}

/// The program's `command`, in which the options of the server that `arguments` (the program's name first) begin have the values of
/// environment and file for defaults. Unchanged where they begin none of `servers`, or cannot be understood: then parsing says
/// why.
pub fn fill(
    command: Command,
    arguments: &[OsString],
    servers: &[ServerCommand],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Command, SettingsError> {
    // Most commands are no servers, and are not parsed twice.
    if !servers.iter().any(|server| names(arguments, server.path)) {
        return Ok(command);
    }
    // What is required may come from the file.
    let lenient = servers.iter().fold(command.clone(), |command, server| {
        change(command, server.path, |command| {
            command.mut_args(|arg| arg.required(false))
        })
    });
    let Ok(matches) = lenient.try_get_matches_from(arguments) else {
        return Ok(command);
    };
    let begun = |server: &&ServerCommand| within(&matches, server.path).is_some();
    let Some(server) = servers.iter().find(begun) else {
        return Ok(command);
    };
    let options = options(&command, server.path);
    let (file_variable, variables) = of_environment(server.word, &options, environment)?;
    let file = within(&matches, server.path)
        .and_then(|matches| matches.get_one::<PathBuf>(CONFIG).cloned())
        .or(file_variable);
    let mut values = match &file {
        Some(path) => of_file(path, &options)?,
        None => BTreeMap::new(),
    };
    values.extend(variables);
    Ok(change(command, server.path, |command| {
        values.into_iter().fold(command, |command, (id, values)| {
            command.mut_arg(id, |arg| {
                // Leaked: clap wants what lives as long as the program, and this runs once in it.
                let values = values.into_iter().map(|value| &*value.leak());
                arg.default_values(values.collect::<Vec<&'static str>>())
                    .required(false)
            })
        })
    }))
}

/// Whether all words of a path are among the arguments, as they are where it is what they begin.
fn names(arguments: &[OsString], path: &[&str]) -> bool {
    path.iter()
        .all(|word| arguments.iter().any(|argument| argument == word))
}

/// The subcommand at the end of a path, changed.
fn change(command: Command, path: &[&str], how: impl FnOnce(Command) -> Command) -> Command {
    match path.split_first() {
        None => how(command),
        // clap takes it for a bug to change what is not there.
        Some((first, _)) if command.find_subcommand(first).is_none() => command,
        Some((first, rest)) => command.mut_subcommand(first, |command| change(command, rest, how)),
    }
}

/// What was matched within a subcommand, if that is what was asked for.
fn within<'m>(matches: &'m ArgMatches, path: &[&str]) -> Option<&'m ArgMatches> {
    path.iter()
        .try_fold(matches, |matches, word| matches.subcommand_matches(word))
}

/// A server's options by their long names.
fn options(command: &Command, path: &[&str]) -> BTreeMap<String, Arg> {
    let command = path
        .iter()
        .try_fold(command, |command, word| command.find_subcommand(word));
    let all = command.into_iter().flat_map(Command::get_arguments);
    all.filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.clone())))
        .filter(|(name, _)| !matches!(name.as_str(), CONFIG | "help" | "version"))
        .collect()
}

/// Values by the options' ids.
type Values = BTreeMap<String, Vec<String>>;

fn of_file(path: &Path, options: &BTreeMap<String, Arg>) -> Result<Values, SettingsError> {
    use std::io::Read;
    let read = || {
        let file = std::fs::File::open(path)?;
        let mut text = String::new();
        if file.take(FILE_MAX + 1).read_to_string(&mut text)? as u64 > FILE_MAX {
            return Err(std::io::Error::other("longer than 1 MiB"));
        }
        Ok(text)
    };
    let text = read().map_err(|source| SettingsError::Read {
        path: path.to_owned(),
        source,
    })?;
    let table: Table = text.parse().map_err(|source| SettingsError::Syntax {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    let place = format!("the settings in {}", path.display());
    let mut values = Values::new();
    for (key, value) in table {
        let arg = known(&place, &key, options)?;
        let list = match value {
            Value::Array(list) if takes_many(arg) => list,
            other => vec![other],
        };
        let list: Option<Vec<String>> = list.into_iter().map(text_of).collect();
        let list = list.ok_or_else(|| SettingsError::Value {
            place: place.clone(),
            key: key.clone(),
            why: "it takes a text, a number, or true and false".into(),
        })?;
        check(&place, &key, arg, &list)?;
        values.insert(arg.get_id().to_string(), list);
    }
    Ok(values)
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(yes) => Some(yes.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// The file that a variable names, and what the others set.
fn of_environment(
    word: &str,
    options: &BTreeMap<String, Arg>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<(Option<PathBuf>, Values), SettingsError> {
    let prefix = format!("STRONGROOM_{}_", word.to_uppercase());
    let (mut file, mut values) = (None, Values::new());
    for (name, value) in environment {
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
            continue;
        };
        if name == "CONFIG" {
            file = Some(value.into());
            continue;
        }
        let place = format!("the variable {prefix}{name}");
        let key = name.to_lowercase().replace('_', "-");
        let arg = known(&place, &key, options)?;
        let text = value.into_string().map_err(|_| SettingsError::Value {
            place: place.clone(),
            key: key.clone(),
            why: "its value is not UTF-8".into(),
        })?;
        let list: Vec<String> = match takes_many(arg) {
            true => text.split(',').map(|part| part.trim().to_owned()).collect(),
            false => vec![text],
        };
        check(&place, &key, arg, &list)?;
        values.insert(arg.get_id().to_string(), list);
    }
    Ok((file, values))
}

fn known<'a>(
    place: &str,
    key: &str,
    options: &'a BTreeMap<String, Arg>,
) -> Result<&'a Arg, SettingsError> {
    options.get(key).ok_or_else(|| SettingsError::Unknown {
        place: place.to_owned(),
        key: key.to_owned(),
        known: options.keys().cloned().collect::<Vec<_>>().join(", "),
    })
}

fn takes_many(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
}

/// Whether the option takes these values: asked of a command that has only this option.
fn check(place: &str, key: &str, arg: &Arg, list: &[String]) -> Result<(), SettingsError> {
    let refused = |why: String| SettingsError::Value {
        place: place.to_owned(),
        key: key.to_owned(),
        why,
    };
    if is_flag(arg) {
        return match list {
            [one] if one == "true" || one == "false" => Ok(()),
            _ => Err(refused("it is true or false".into())),
        };
    }
    let alone = Arg::new("it")
        .long("it")
        .action(arg.get_action().clone())
        .value_parser(arg.get_value_parser().clone())
        .allow_hyphen_values(true);
    let words = list.iter().map(|value| format!("--it={value}"));
    Command::new("settings")
        .no_binary_name(true)
        .arg(alone)
        .try_get_matches_from(words)
        .map(drop)
        .map_err(|e| refused(words_of(&e)))
}

/// What clap says of a value, without what it says of the option, which here has another name.
fn words_of(error: &clap::Error) -> String {
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    let value = first
        .trim_start_matches("error: ")
        .replace(" for '--it <it>'", "");
    let more = said.lines().find(|line| line.contains("possible values"));
    match more {
        Some(more) => format!("{value} {}", more.trim()),
        None => value,
    }
}

#[cfg(test)]
mod tests;
