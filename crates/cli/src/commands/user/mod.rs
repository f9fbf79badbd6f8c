//! `strongroom user`: who may use a room on network disks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use metadata_proto::admin::{Ended, Quota, UserRow};
use metadata_proto::identity::Identity;
use serde_json::json;
use storage::NewPrivateFile;

use crate::access::OpenArgs;
use crate::args::Global;
use crate::commands::metadata::admin::{self, Reply, Request};
use crate::error::{Error, Result};
use crate::mounting::options::duration;
use crate::output;
use crate::size::bytes;

/// Add, renew and remove the users of a room on network disks
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a key for a user: new, or a known one with the same numbers, who then has one more
    Add(Add),
    /// Make a key for a known user in place of one that ends
    Renew(Renew),
    /// Take a user out, at once and with every key
    Remove(Remove),
    /// Set how much a user may have
    Quota(SetQuota),
    /// List the users
    List(List),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// The room's directory
    room: PathBuf,
    /// The user's name
    name: String,
    /// Make an administrator instead, who lists and removes users, lists, adds and removes disks, and reaches no file
    #[arg(long, conflicts_with_all = ["uid", "gid", "groups"])]
    admin: bool,
    /// The user's number; 0 may do everything
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    /// The number of the user's first group, that of new files; that of this process if not given
    #[arg(long, value_name = "N")]
    gid: Option<u32>,
    /// Numbers of further groups
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    groups: Vec<u32>,
    /// Where the identity goes: a new file, for `mount --identity`. Anyone with this file is the user
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Debug, clap::Args)]
struct Renew {
    /// The room's directory
    room: PathBuf,
    /// The user's name
    name: String,
    /// Where the new identity goes: a new file, for `mount --identity`. Anyone with this file is the user
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The identity that it replaces, which ends after the overlap. Without it the user's other keys end at their own time
    #[arg(long, value_name = "FILE")]
    replaces: Option<PathBuf>,
    /// Accept the replaced identity for this long: 12h, 30d
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration, requires = "replaces")]
    overlap: Duration,
    /// End the replaced identity at once
    #[arg(long, requires = "replaces", conflicts_with = "overlap")]
    now: bool,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// The room's directory
    room: PathBuf,
    /// The user's name
    name: String,
    #[command(flatten)]
    open: OpenArgs,
}

#[derive(Debug, clap::Args)]
struct SetQuota {
    /// The room's directory
    room: PathBuf,
    /// The user's name
    name: String,
    /// How much the files that the user owns may take together, as 500MiB or 2TiB; `none`: as much as there is
    #[arg(value_name = "SIZE", value_parser = |text: &str| Bound::parse(text, bytes))]
    size: Bound,
    /// How many files of any kind the user may own; `none`: as many as there is space for
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::parse(text, count), default_value = "none")]
    files: Bound,
    #[command(flatten)]
    open: OpenArgs,
}

/// A limit; `None`: there is none.
#[derive(Debug, Clone, Copy)]
struct Bound(Option<u64>);

impl Bound {
    fn parse<E>(
        text: &str,
        number: impl Fn(&str) -> std::result::Result<u64, E>,
    ) -> std::result::Result<Self, E> {
        match text {
            "none" => Ok(Self(None)),
            text => Ok(Self(Some(number(text)?))),
        }
    }
}

fn count(text: &str) -> std::result::Result<u64, std::num::ParseIntError> {
    text.parse()
}

#[derive(Debug, clap::Args)]
struct List {
    /// The room's directory
    room: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: Args, global: &Global) -> Result<()> {
    match args.command {
        Command::Add(args) => add(&args, global),
        Command::Renew(args) => renew(&args, global),
        Command::Remove(args) => remove(&args, global),
        Command::Quota(args) => set_quota(&args, global),
        Command::List(args) => list(&args, global),
    }
}

/// Asks for an identity, and keeps it in a new file.
fn keep_identity(room: &Path, open: &OpenArgs, request: Request, out: &Path) -> Result<()> {
    if out.symlink_metadata().is_ok() {
        return Err(Error::usage_at(
            out,
            "exists; an identity is never written over: choose another name",
        ));
    }
    // The file first: a key that cannot be kept is not made.
    let of_file = |e| Error::host(out, e);
    let file = NewPrivateFile::create(out).map_err(of_file)?;
    let Reply::Identity(text) = admin::ask(room, open, request)? else {
        return Err(admin::unexpected());
    };
    file.keep(text.0.expose()).map_err(of_file)
}

fn renew(args: &Renew, global: &Global) -> Result<()> {
    let replaces = args.replaces.as_deref().map(serial).transpose()?;
    let overlap = if args.now {
        Duration::ZERO
    } else {
        args.overlap
    };
    let request = Request::RenewUser {
        name: args.name.clone(),
        replaces,
        overlap_s: overlap.as_secs(),
    };
    keep_identity(&args.room, &args.open, request, &args.out)?;
    output::done(
        global,
        json!({"user": args.name, "identity": args.out.to_string_lossy(), "overlap": overlap.as_secs()}),
        format!(
            "A new key of {} is in {}: anyone with it is {}.",
            args.name,
            args.out.display(),
            args.name
        ),
    );
    Ok(())
}

/// The serial number of an identity file.
fn serial(path: &Path) -> Result<[u8; 16]> {
    let failed = |why: String| Error::failed(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|e| Error::host(path, e))?;
    let text = zeroize::Zeroizing::new(text);
    let identity = Identity::parse(&text).map_err(|e| failed(e.to_string()))?;
    identity
        .serial()
        .ok_or_else(|| failed("not an identity of a room".into()))
}

fn add_admin(args: &Add, global: &Global) -> Result<()> {
    let name = args.name.clone();
    keep_identity(
        &args.room,
        &args.open,
        Request::AddAdmin { name },
        &args.out,
    )?;
    output::done(
        global,
        json!({"user": args.name, "admin": true, "identity": args.out.to_string_lossy()}),
        format!(
            "{} administers {}. The key is in {}: anyone with it is {}.\n\
             Use it with:  strongroom disk list strongroom://HOST:PORT/ --identity {}",
            args.name,
            args.room.display(),
            args.out.display(),
            args.name,
            output::quoted(&args.out)
        ),
    );
    Ok(())
}

fn add(args: &Add, global: &Global) -> Result<()> {
    if args.admin {
        return add_admin(args, global);
    }
    let uid = args
        .uid
        .unwrap_or_else(|| rustix::process::getuid().as_raw());
    let mut gids = vec![
        args.gid
            .unwrap_or_else(|| rustix::process::getgid().as_raw()),
    ];
    for gid in &args.groups {
        if !gids.contains(gid) {
            gids.push(*gid);
        }
    }
    let request = Request::AddUser {
        name: args.name.clone(),
        uid,
        gids: gids.clone(),
    };
    keep_identity(&args.room, &args.open, request, &args.out)?;
    output::done(
        global,
        json!({"user": args.name, "uid": uid, "gids": gids, "identity": args.out.to_string_lossy()}),
        format!(
            "{} may use {} as user {uid}. The key is in {}: anyone with it is {}.\n\
             Mount with:  strongroom mount strongroom://HOST:PORT/ MOUNTPOINT --identity {}",
            args.name,
            args.room.display(),
            args.out.display(),
            args.name,
            output::quoted(&args.out)
        ),
    );
    Ok(())
}

fn remove(args: &Remove, global: &Global) -> Result<()> {
    let name = args.name.clone();
    let Reply::Removed(ended) = admin::ask(&args.room, &args.open, Request::RemoveUser { name })?
    else {
        return Err(admin::unexpected());
    };
    let left = match ended {
        Ended::All => "",
        Ended::ButInRoom => {
            " The room cannot be changed at the moment: locks and open files of that user are freed when it can. The server's log says why."
        }
        Ended::ButOnDisks => {
            " A disk cannot be reached: what it still allows is revoked when it answers, or ends with its time."
        }
    };
    output::note(
        global,
        format!("{} is out, with every key.{left}", args.name),
    );
    Ok(())
}

fn set_quota(args: &SetQuota, global: &Global) -> Result<()> {
    let quota = Quota {
        bytes: args.size.0,
        files: args.files.0,
    };
    let name = args.name.clone();
    let Reply::Done = admin::ask(&args.room, &args.open, Request::SetQuota { name, quota })? else {
        return Err(admin::unexpected());
    };
    output::note(
        global,
        match quota_words(&quota) {
            Some(words) => format!("{} may have {words}.", args.name),
            None => format!("{} may have as much as there is.", args.name),
        },
    );
    Ok(())
}

/// `None`: there is no quota.
fn quota_words(quota: &Quota) -> Option<String> {
    let bytes = quota.bytes.map(output::size);
    let files = quota.files.map(|files| output::count(files, "file"));
    let parts: Vec<String> = [bytes, files].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// What a user has and may have, for a line of the list.
fn usage(user: &UserRow) -> String {
    let used = user.used.map(|used| {
        format!(
            "{} in {}",
            output::size(used.bytes),
            output::count(used.files, "file")
        )
    });
    match (used, quota_words(&user.quota)) {
        (Some(used), Some(quota)) => format!("  {used}, of {quota}"),
        (Some(used), None) => format!("  {used}"),
        (None, Some(quota)) => format!("  at most {quota}"),
        (None, None) => String::new(),
    }
}

fn list(args: &List, global: &Global) -> Result<()> {
    let Reply::Users(users) = admin::ask(&args.room, &args.open, Request::Users {})? else {
        return Err(admin::unexpected());
    };
    if global.json {
        let users: Vec<_> = users
            .iter()
            .map(|u| {
                let ends: Vec<_> = u.serials.iter().map(|serial| u.end_of(serial)).collect();
                if u.is_admin() {
                    return json!({"user": u.name, "admin": true, "keys": u.serials.len(), "ends": ends});
                }
                json!({"user": u.name, "uid": u.uid, "gids": u.gids, "keys": u.serials.len(), "ends": ends,
                    "quota": u.quota, "used": u.used})
            })
            .collect();
        output::json_line(&users);
        return Ok(());
    }
    for user in users {
        let gids: Vec<String> = user.gids.iter().map(u32::to_string).collect();
        let ends = user.serials.iter().map(|serial| user.end_of(serial));
        let ends: Vec<String> = ends.map(output::end).collect();
        let what = match user.is_admin() {
            true => "administrator".into(),
            false => format!("uid {}  groups {}", user.uid, gids.join(",")),
        };
        output::line(format!(
            "{}  {what}  {}: {}{}",
            user.name,
            output::count(user.serials.len() as u64, "key"),
            ends.join(", "),
            usage(&user)
        ));
    }
    Ok(())
}
