//! `strongroom create`: creates a room.

use std::path::{Path, PathBuf};

use room::{NewCredential, NewRoom, Suite};
use serde_json::json;

use crate::args::Global;
use crate::ask;
use crate::bucket;
use crate::credentials::{self, HexSecret, NewGiven, WorkArgs};
use crate::error::{Error, Result};
use crate::output::{self, quoted};
use crate::proxy::room_name;

/// Create a room in a new or empty directory
#[derive(Debug, clap::Args)]
#[command(
    after_help = "In a bucket (s3://BUCKET/PREFIX), an engine can keep the order of commits: --log postgres://[USER@]HOST[:PORT]/DATABASE, \
    or --log etcd://[USER@]HOST:PORT[,HOST:PORT...]/PREFIX. Other commands need it once on each machine. The password comes from \
    PGPASSWORD, ~/.pgpass or STRONGROOM_LOG_PASSWORD."
)]
pub(crate) struct Args {
    /// The room's directory; must not exist, or be empty
    room: PathBuf,
    /// Read the passphrase from FILE ("-": one line of standard input); one trailing newline is stripped
    #[arg(long, value_name = "FILE", group = "credential")]
    passphrase_file: Option<PathBuf>,
    /// Run CMD with sh, and take what it prints as the passphrase
    #[arg(long, value_name = "CMD", group = "credential")]
    passphrase_command: Option<String>,
    /// Make the content of FILE the key (up to 1 MiB, every byte counts); with a passphrase option, the room needs both
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw_key_file", "recipient"])]
    key_file: Option<PathBuf>,
    /// Ask for a passphrase that is needed beside the key file
    #[arg(long, requires = "key_file", conflicts_with_all = ["passphrase_file", "passphrase_command"])]
    ask_passphrase: bool,
    /// Make the raw key in FILE (32 bytes, or 64 hexadecimal digits) the key
    #[arg(long, value_name = "FILE", group = "credential")]
    raw_key_file: Option<PathBuf>,
    /// Let an age or SSH recipient open the room: age1..., age1PLUGIN1..., ssh-ed25519 ..., ssh-rsa ...; may be repeated
    #[arg(long, value_name = "RECIPIENT", group = "credential")]
    recipient: Vec<String>,
    /// A word for the first key slot
    #[arg(long, default_value = "")]
    label: String,
    /// The cipher suite of file data; the faster one here if not given
    #[arg(long, value_parser = ["aes-256-gcm", "chacha20-poly1305"])]
    suite: Option<String>,
    /// Who owns the room's top directory, by number: for a room that is shared [default: this user and group]
    #[arg(long, value_name = "UID[:GID]", value_parser = owner)]
    owner: Option<(u32, u32)>,
    /// Where this machine remembers the newest state it saw of rooms; machines may share it [default: $STRONGROOM_STATE_DIR, else strongroom in the user's state directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    work: WorkArgs,
}

/// A user's number and a group's; without the second one, the group of the same number.
fn owner(text: &str) -> std::result::Result<(u32, u32), String> {
    let number = |text: &str| {
        let read = text.parse().ok().filter(|number| *number != u32::MAX);
        read.ok_or_else(|| format!("{text}: not the number of a user or group, as in 1000:1000"))
    };
    match text.split_once(':') {
        Some((uid, gid)) => Ok((number(uid)?, number(gid)?)),
        None => number(text).map(|uid| (uid, uid)),
    }
}

impl Args {
    fn credential(&self) -> Result<NewCredential> {
        let cost = self.work.cost()?;
        let secret = HexSecret;
        let of = self.room.display().to_string();
        let named = self.passphrase_file.is_some() || self.passphrase_command.is_some();
        let passphrase = || match &self.passphrase_command {
            Some(command) => credentials::passphrase_of_command(command),
            None => credentials::passphrase_given(
                self.passphrase_file.as_deref(),
                &of,
                ask::new_passphrase,
            ),
        };
        let given = if let Some(file) = &self.key_file {
            let both = named || self.ask_passphrase;
            NewGiven::with_key_file(file, both.then_some(passphrase), cost)?
        } else if let Some(file) = &self.raw_key_file {
            NewGiven::RawKey {
                secret: secret(credentials::raw_key_file(file)?),
            }
        } else if !self.recipient.is_empty() {
            NewGiven::Recipients {
                recipients: self.recipient.clone(),
            }
        } else {
            NewGiven::Passphrase {
                secret: secret(passphrase()?),
                cost,
            }
        };
        given.credential()
    }
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    let dir = &args.room;
    check_target(dir)?;
    let mut new = NewRoom::with_credential(args.credential()?);
    new.label = args.label.clone();
    new.open.state_dir = args.state_dir.clone();
    if let Some((uid, gid)) = args.owner {
        (new.uid, new.gid) = (uid, gid);
    }
    new.suite = args
        .suite
        .as_deref()
        .and_then(|name| Suite::ALL.into_iter().find(|suite| suite.name() == name));
    let failed = |e| Error::room(dir, e);
    let room = bucket::create_room(dir, new).map_err(failed)?;
    let info = room.info().map_err(failed)?;
    room.close().map_err(failed)?;
    if global.json {
        output::json_line(
            &json!({"room": dir.to_string_lossy(), "id": info.id.to_string(), "suite": info.suite.name()}),
        );
    } else {
        let name = room_name(dir);
        let (name, typed) = (name.display(), quoted(&name));
        output::note(
            global,
            format!(
                "Made the room {name}.\n\
                 Mount it:          mkdir MOUNTPOINT && strongroom mount {typed} MOUNTPOINT\n\
                 Keep its header:   strongroom header backup {typed} FILE  (a damaged header without a backup is a lost room)"
            ),
        );
    }
    Ok(())
}

/// Refuses before a passphrase is asked for.
fn check_target(dir: &Path) -> Result<()> {
    if bucket::is_proxy(dir) {
        return Ok(());
    }
    let name = dir.display();
    match std::fs::read_dir(dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) if crate::place::is_room(dir) => Err(Error::failed(format!(
                "{name}: there is a room here already; mount it with: strongroom mount {} MOUNTPOINT",
                quoted(dir)
            ))),
            Some(_) => Err(Error::failed(format!(
                "{name}: exists and is not empty; choose a new directory"
            ))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => {
                Err(Error::failed(format!(
                    "{name}: {} does not exist; make it first with: mkdir -p {}",
                    parent.display(),
                    quoted(parent)
                )))
            }
            _ => Ok(()),
        },
        Err(e) => Err(Error::host(dir, e)),
    }
}
