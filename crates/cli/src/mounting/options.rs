//! Mount options as `-o` brings them, from the command line and from fstab by way of mount(8).

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use mount::{AccessTimes, SnapshotDirectory, Synchronous};
use serde::{Deserialize, Serialize};

use crate::confinement::Confinement;
use crate::credentials::CredentialArgs;
use crate::error::{Error, Result};

/// Whether a mount shows the room's snapshots in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
pub(crate) enum ShownSnapshots {
    /// In one that no listing shows.
    #[default]
    Hidden,
    /// In one that the listing of the top directory shows.
    Show,
    /// In none.
    Off,
}

/// How a room is to be mounted. `None` where the default depends on who mounts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) credential: CredentialArgs,
    pub(crate) read_only: bool,
    /// Whether a room in a bucket is shown as its writer makes it.
    pub(crate) follow: bool,
    /// The snapshot to mount in the place of the room.
    pub(crate) snapshot: Option<String>,
    pub(crate) allow_other: Option<bool>,
    pub(crate) suid: Option<bool>,
    pub(crate) dev: Option<bool>,
    pub(crate) exec: Option<bool>,
    pub(crate) access_times: AccessTimes,
    pub(crate) no_directory_access_times: bool,
    pub(crate) lazy_times: bool,
    /// `None`: where the kernel offers it.
    pub(crate) io_uring: Option<bool>,
    pub(crate) synchronous: Synchronous,
    pub(crate) snapshots: Option<ShownSnapshots>,
    /// The name of the directory of snapshots.
    pub(crate) snapshots_name: Option<String>,
    pub(crate) idle_timeout: Option<Duration>,
    /// How long a call waits for a server or disk that does not answer.
    pub(crate) timeout: Option<Duration>,
    pub(crate) accept_rollback: bool,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) log: Option<PathBuf>,
    /// `None`: as the command says it.
    pub(crate) confinement: Option<Confinement>,
}

/// Options that are mount(8)'s own or say what is so anyway.
const IGNORED: &[&str] = &[
    "defaults",
    "_netdev",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "loud",
    "silent", // words.py: mount(8)'s word
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "bg",
    "fg",
];

impl Options {
    /// Takes in a list such as `ro,allow_other,passphrase-file=/root/pass`. `sloppy`: what is unknown is passed over.
    pub(crate) fn add(&mut self, list: &str, sloppy: bool) -> Result<()> {
        for option in list.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            // fstab spells options either way.
            let name = name.replace('_', "-");
            let path = || match value {
                Some(value) if !value.is_empty() => Ok(Some(PathBuf::from(value))),
                _ => Err(Error::usage(format!(
                    "mount option {name} needs a file: {name}=FILE"
                ))),
            };
            match name.as_str() {
                "ro" => self.read_only = true,
                "rw" => self.read_only = false,
                "follow" => self.follow = true,
                "nofollow" => self.follow = false,
                "snapshot" => {
                    let name = value.filter(|name| !name.is_empty());
                    let name = name.ok_or_else(|| {
                        Error::usage("mount option snapshot needs a name: snapshot=NAME")
                    })?;
                    self.snapshot = Some(name.to_owned());
                }
                "allow-other" => self.allow_other = Some(true),
                "suid" => self.suid = Some(true),
                "nosuid" => self.suid = Some(false),
                "dev" => self.dev = Some(true),
                "nodev" => self.dev = Some(false),
                "exec" => self.exec = Some(true),
                "noexec" => self.exec = Some(false),
                "noatime" => self.access_times = AccessTimes::Never,
                "strictatime" => self.access_times = AccessTimes::Strict,
                // As mount(8) has it, each of these means the default.
                "atime" | "relatime" | "norelatime" | "nostrictatime" => {
                    self.access_times = AccessTimes::Relative
                }
                "diratime" => self.no_directory_access_times = false,
                "nodiratime" => self.no_directory_access_times = true,
                "lazytime" => self.lazy_times = true,
                "nolazytime" => self.lazy_times = false,
                "io-uring" => self.io_uring = Some(true),
                "noio-uring" => self.io_uring = Some(false),
                "sync" => self.synchronous = Synchronous::All,
                "dirsync" => self.synchronous = self.synchronous.max(Synchronous::Names),
                "async" => self.synchronous = Synchronous::Off,
                "snapshots" => {
                    let mode = value.unwrap_or_default();
                    self.snapshots = Some(ShownSnapshots::from_str(mode, false).map_err(|_| {
                        Error::usage("mount option snapshots: hidden, show or off")
                    })?);
                }
                "snapshots-name" => {
                    let name = snapshots_name(value.unwrap_or_default());
                    self.snapshots_name = Some(name.map_err(Error::usage)?);
                }
                "passphrase-file" => self.credential.passphrase_file = path()?,
                "passphrase-command" => match value {
                    Some(command) if !command.is_empty() => {
                        self.credential.passphrase_command = Some(command.to_owned());
                    }
                    _ => {
                        return Err(Error::usage(
                            "mount option passphrase-command needs a command: passphrase-command=CMD",
                        ));
                    }
                },
                "key-file" => self.credential.key_file = path()?,
                "ask-passphrase" => self.credential.ask_passphrase = true,
                "raw-key-file" => self.credential.raw_key_file = path()?,
                "identity" => self.credential.identity = path()?,
                "log" => self.log = path()?,
                "state-dir" => self.state_dir = path()?,
                "confinement" => {
                    let mode = value.unwrap_or_default();
                    self.confinement = Some(Confinement::from_str(mode, false).map_err(|_| {
                        Error::usage("mount option confinement: auto, required or off")
                    })?);
                }
                "accept-rollback" => self.accept_rollback = true,
                "idle-timeout" => {
                    self.idle_timeout =
                        Some(duration(value.unwrap_or_default()).map_err(Error::usage)?)
                }
                // words.py: the old name.
                "timeout" | "patience" => {
                    self.timeout = Some(duration(value.unwrap_or_default()).map_err(Error::usage)?)
                }
                "user" | "uid" | "gid" | "comment" => {}
                _ if name.starts_with("x-") || name.starts_with("X-") => {}
                _ if IGNORED.contains(&option) || IGNORED.contains(&name.as_str()) => {}
                _ if sloppy => {}
                _ => {
                    return Err(Error::usage(format!(
                        "unknown mount option `{option}`; known: ro, follow, snapshot=, allow_other, suid, dev, noexec, noatime, \
                         relatime, strictatime, nodiratime, lazytime, sync, dirsync, io_uring, snapshots=, \
                         snapshots-name=, passphrase-file=, passphrase-command=, key-file=, ask-passphrase, raw-key-file=, identity=, idle-timeout=, timeout=, log=, \
                         state-dir=, confinement=, accept-rollback"
                    )));
                }
            }
        }
        let given = &self.credential;
        // A passphrase and a key file open a slot that needs both.
        let kinds = [
            given.names_passphrase() || given.key_file.is_some(),
            given.raw_key_file.is_some(),
            given.identity.is_some(),
        ];
        if kinds.into_iter().filter(|is_given| *is_given).count() > 1 {
            return Err(Error::usage(
                "more than one of a passphrase or key-file, raw-key-file and identity: give one",
            ));
        }
        if given.passphrase_file.is_some() && given.passphrase_command.is_some() {
            return Err(Error::usage(
                "passphrase-file and passphrase-command: give one",
            ));
        }
        if given.ask_passphrase && (given.key_file.is_none() || given.names_passphrase()) {
            return Err(Error::usage(
                "ask-passphrase goes with key-file, and in the place of passphrase-file and passphrase-command",
            ));
        }
        Ok(())
    }
}

/// The name of a directory of snapshots.
pub(crate) fn snapshots_name(name: &str) -> std::result::Result<String, String> {
    match SnapshotDirectory::is_name(name.as_bytes()) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "`{name}` cannot be the name of the directory of snapshots: 1 to 255 bytes without a /, and neither . nor .."
        )),
    }
}

/// A time such as `90`, `90s`, `10m` or `2h`.
pub(crate) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let refusal = || format!("`{text}` is not a time: write seconds, or 90s, 10m, 2h, 30d");
    let seconds = text.parse().map(Duration::from_secs);
    let time = seconds
        .or_else(|_| humantime::parse_duration(text))
        .map_err(|_| refusal())?;
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(366 * 86_400));
    match (least..=most).contains(&time) {
        true => Ok(time),
        false => Err(refusal()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_an_fstab_line_are_understood() {
        let mut options = Options::default();
        options
            .add("rw,ro,allow_other,nosuid,_netdev,nofail,x-systemd.automount,passphrase-file=/p,idle_timeout=10m,timeout=3s", false)
            .unwrap();
        assert!(options.read_only);
        assert_eq!(options.allow_other, Some(true));
        assert_eq!(options.suid, Some(false));
        assert_eq!(options.idle_timeout, Some(Duration::from_secs(600)));
        assert_eq!(options.timeout, Some(Duration::from_secs(3)));
        assert_eq!(options.credential.passphrase_file, Some("/p".into()));
    }

    #[test]
    fn of_options_that_exclude_each_other_the_last_one_counts() {
        let options = |list: &str| {
            let mut options = Options::default();
            options.add(list, false).unwrap();
            options
        };
        for (list, expected) in [
            ("", AccessTimes::Relative),
            ("noatime", AccessTimes::Never),
            ("noatime,atime", AccessTimes::Relative),
            ("noatime,strictatime", AccessTimes::Strict),
            ("strictatime,relatime", AccessTimes::Relative),
        ] {
            assert_eq!(options(list).access_times, expected, "{list}");
        }
        for (list, expected) in [
            ("", Synchronous::Off),
            ("sync", Synchronous::All),
            ("sync,async", Synchronous::Off),
            ("sync,dirsync", Synchronous::All),
            ("async,dirsync", Synchronous::Names),
        ] {
            assert_eq!(options(list).synchronous, expected, "{list}");
        }
        assert!(options("nodiratime").no_directory_access_times);
        assert!(!options("nodiratime,diratime").no_directory_access_times);
        assert!(options("lazytime").lazy_times);
        assert!(!options("lazytime,nolazytime").lazy_times);
        assert_eq!(options("").io_uring, None);
        assert_eq!(options("io_uring").io_uring, Some(true));
        assert_eq!(options("io_uring,noio_uring").io_uring, Some(false));
    }

    #[test]
    fn how_snapshots_are_shown_is_understood_or_refused() {
        let mut options = Options::default();
        options
            .add("snapshots=off,snapshots=show,snapshots_name=past", false)
            .unwrap();
        assert_eq!(options.snapshots, Some(ShownSnapshots::Show));
        assert_eq!(options.snapshots_name.as_deref(), Some("past"));
        for bad in [
            "snapshots",
            "snapshots=all",
            "snapshots-name=",
            "snapshots-name=..",
            "snapshots-name=a/b",
        ] {
            assert!(options.add(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_unknown_is_refused_unless_sloppy() {
        let mut options = Options::default();
        assert!(
            options
                .add("frobnicate", false)
                .unwrap_err()
                .to_string()
                .contains("`frobnicate`")
        );
        options.add("frobnicate", true).unwrap();
        assert!(options.add("passphrase-file=", false).is_err());
        assert!(
            options
                .add("passphrase-file=/a,raw-key-file=/b", false)
                .is_err()
        );
        let command = "passphrase-command=pass show room";
        let mut named = Options::default();
        named.add(command, false).unwrap();
        assert_eq!(
            named.credential.passphrase_command.as_deref(),
            Some("pass show room")
        );
        assert!(named.add("passphrase-file=/a", false).is_err());
        assert!(named.add("passphrase-command=", false).is_err());
        let mut both = Options::default();
        both.add("passphrase-file=/a,key-file=/b", false).unwrap();
        assert!(both.add("ask-passphrase", false).is_err());
    }

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for bad in [
            "",
            "0",
            "-1",
            "h",
            "1x",
            "90ms",
            "400d",
            "99999999999999999999h",
            "é",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
