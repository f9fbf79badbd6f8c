//! What the commands and servers that parse others' bytes keep, and the option that decides how strictly.
//!
//! Invariant: a profile is entered before the first byte is parsed, and while the process has one thread. See [`confine`].

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use confine::{Network, Profile, Strictness};
use serde::{Deserialize, Serialize};

use crate::bucket;
use crate::credentials::{CredentialArgs, Given, names_plugin};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::runtime;

/// How strictly a process confines itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// As far as this kernel can
    #[default]
    Auto,
    /// Wholly, or it does not start
    Required,
    /// Not at all
    Off,
}

impl Confinement {
    /// Drops all that `profile` does not keep. `what` is for the log.
    pub(crate) fn enter(self, profile: &Profile, what: &str) -> Result<()> {
        let strictness = match self {
            Self::Off => {
                tracing::debug!("{what} is not confined, as asked for");
                return Ok(());
            }
            Self::Auto => Strictness::BestEffort,
            Self::Required => Strictness::Required,
        };
        let confined = confine::enter(profile, strictness).map_err(refused)?;
        match confined.is_whole() {
            true => tracing::debug!("{what} is confined: {confined}"),
            false => {
                tracing::info!("{what} is not wholly confined: this kernel has {confined}");
            }
        }
        Ok(())
    }

    /// The same for what opens a room with `given`.
    pub(crate) fn enter_with(self, profile: &Profile, what: &str, given: &Given) -> Result<()> {
        self.enter_unless_plugin(profile, what, given.uses_plugin())
    }

    /// The same for what will read `credential`.
    pub(crate) fn enter_for(
        self,
        profile: &Profile,
        what: &str,
        credential: &CredentialArgs,
    ) -> Result<()> {
        credential.run_commands()?;
        // A pipe can be read once.
        let identity = credential.identity.as_deref().filter(|file| file.is_file());
        let text = identity.and_then(|file| std::fs::read(file).ok());
        let text = zeroize::Zeroizing::new(text.unwrap_or_default());
        self.enter_unless_plugin(profile, what, names_plugin(&text))
    }

    /// An age plugin is another program with files of its own, which could not start.
    fn enter_unless_plugin(self, profile: &Profile, what: &str, plugin: bool) -> Result<()> {
        if !plugin {
            return self.enter(profile, what);
        }
        if self == Self::Off {
            return Ok(());
        }
        let why = "the identity's age plugin must be able to start";
        if self == Self::Required {
            return Err(refused(why));
        }
        tracing::info!("{what} is not confined: {why}");
        Ok(())
    }
}

fn refused(why: impl std::fmt::Display) -> Error {
    Error::said(
        Exit::Failed,
        format!("{why}; --confinement auto goes on with what can be done"),
    )
}

/// The files that hold a credential.
pub(crate) fn credential_files(args: &CredentialArgs) -> Vec<PathBuf> {
    let files = [
        &args.passphrase_file,
        &args.key_file,
        &args.raw_key_file,
        &args.identity,
    ];
    files.into_iter().flatten().cloned().collect()
}

/// What a process that has a room keeps: the room, what this machine remembers of rooms, and the directories of sockets.
pub(crate) fn of_room(dir: &Path, state_dir: Option<&Path>) -> Profile {
    let state = state_dir
        .map(Path::to_owned)
        .or_else(room::default_state_dir);
    let mut write = vec![dir.to_owned()];
    if let Some(state) = state {
        // A rule needs the directory. Where it cannot be created, the room says what that means.
        let _ = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&state);
        write.push(state);
    }
    // Created, if it can be.
    let _ = runtime::directory();
    write.extend(runtime::directories());
    let mut profile = Profile {
        write,
        ..Profile::default()
    };
    if bucket::is_proxy(dir) {
        profile.network = Network::Client;
        profile.read = bucket::files_for_room(dir);
    }
    profile
}

/// The same, with the files of the credential.
pub(crate) fn of_room_to_open(
    dir: &Path,
    state_dir: Option<&Path>,
    credential: &CredentialArgs,
) -> Profile {
    let mut profile = of_room(dir, state_dir);
    profile.read.extend(credential_files(credential));
    profile
}

/// A file that may have to be created: then its directory is kept.
pub(crate) fn file_or_directory(path: &Path) -> PathBuf {
    if path.symlink_metadata().is_ok() || path.as_os_str() == "-" {
        return path.to_owned();
    }
    directory(path)
}

/// The directory of a file.
pub(crate) fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The ports of a server: where it listens, and of its health endpoint.
pub(crate) fn ports(listen: &str, service: &service::Common) -> Vec<u16> {
    let port = listen.rsplit_once(':').map_or("", |(_, port)| port);
    let own = port.parse().ok();
    let health = service.health.map(|address| address.0.port());
    own.into_iter().chain(health).collect()
}
