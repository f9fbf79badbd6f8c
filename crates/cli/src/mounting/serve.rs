//! The process that serves a mount: opens the room, mounts it, answers on the control socket, ends cleanly.
//!
//! 1. While the room is open, its control socket's name is this process's to make and remove.
//!    A shared file system has none.
//! 2. However the mount ends (unmounted, idle, a signal), the room is committed and closed before the process ends, and
//!    a process that waits on the control socket learns how that went.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metadata_client::{ClientOptions, SharedRoom};
use metadata_proto::identity::{Identity, RENEW_BEFORE};
use mount::WithSnapshots;
use room::{FileSystem, KnownKey, OpenOptions, Room, Snapshots};
use rustix::fs::Mode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::follow::{Follower, Following};
use super::launch::Plan;
use super::mounter::{Helper, Mounter, refused};
use crate::bucket;
use crate::confinement::{self, Confinement};
use crate::control::Transport;
use crate::control::client::Client;
use crate::control::server::{RoomNow, Server};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use crate::snapshots::{self, schedule::Schedule};
use confine::{Network, Profile};

/// How long closing waits for a check or compaction to reach a safe point.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// A log larger than this is set aside when a new mount begins, in bytes.
const LOG_MAX: u64 = 1 << 20;

/// What the serving process does on the way.
pub(crate) trait Start {
    /// Nothing is open yet, and the process can still reach everything.
    fn begun(&mut self) -> Result<()>;
    /// The room is open, nothing is mounted yet: the last moment at which the user's terminal is needed. The mount's threads
    /// inherit the standard descriptors as they are after this.
    fn opened(&mut self) -> Result<()>;
    /// The room is mounted.
    fn mounted(&mut self);
    /// Whether losing the terminal ends the mount.
    fn has_terminal(&self) -> bool;
}

/// Staying in the foreground: there is nothing to do.
pub(crate) struct InForeground;

impl Start for InForeground {
    fn begun(&mut self) -> Result<()> {
        Ok(())
    }

    fn opened(&mut self) -> Result<()> {
        Ok(())
    }

    fn mounted(&mut self) {}

    fn has_terminal(&self) -> bool {
        true
    }
}

/// Serves until unmounted.
pub(crate) fn serve(plan: &Plan, start: &mut dyn Start) -> Result<()> {
    // Everything this process makes is private: socket, log, and what the room writes.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let known_key = key_of_plugin(plan)?;
    // Before anything can be left half done by one.
    let signals = Signals::new([SIGTERM, SIGINT]).map_err(broken)?;
    if start.has_terminal() {
        signals.add_signal(SIGHUP).map_err(broken)?;
    } else {
        // A handler that does nothing of note.
        signal_hook::flag::register(SIGHUP, Arc::default()).map_err(broken)?;
    }
    start.begun()?;
    let mounter = confine(plan)?;
    match &plan.server {
        Some(address) => serve_shared(plan, address, mounter, signals, start),
        None => serve_room(plan, known_key, mounter, signals, start),
    }
}

/// The key that an age plugin opens, before signals are handled: one ends the wait for it, perhaps for a touch of its device.
fn key_of_plugin(plan: &Plan) -> Result<Option<KnownKey>> {
    // Confinement that is required is refused below.
    let is_asked = plan.server.is_none() && plan.confinement != Confinement::Required;
    if !is_asked || !plan.credential.uses_plugin() {
        return Ok(None);
    }
    let (dir, credential) = (plan.room()?, plan.credential.credential()?);
    let key = bucket::known_key(&dir, &credential).map_err(|e| Error::room(&dir, e))?;
    Ok(Some(key))
}

/// Drops what the process does not need, before it parses anything of the room, and while it has one thread.
fn confine(plan: &Plan) -> Result<Mounter> {
    if !plan.is_confined() {
        // Says why.
        plan.confinement.enter_with(
            &Profile::default(),
            "the mount's process",
            &plan.credential,
        )?;
        return Ok(Mounter::Itself);
    }
    let helper = Helper::start(plan)?;
    let mountpoint = plan.mountpoint()?;
    let mut profile = match &plan.server {
        Some(_) => Profile {
            network: Network::Client,
            ..Profile::default()
        },
        None => confinement::of_room(&plan.room()?, plan.state_dir()?.as_deref()),
    };
    // A mount's own root has no rule: it is not there yet. The kernel is asked through it to write back.
    profile.list.extend(mountpoint.parent().map(Path::to_owned));
    // Groups of the processes that use the mount, and the size of memory.
    profile.read.push("/proc".into());
    // Connections of the mount's threads, and how far the kernel reads ahead.
    profile
        .write
        .extend(["/dev/fuse".into(), "/sys/devices/virtual/bdi".into()]);
    profile.io_uring = true;
    plan.confinement.enter(&profile, "the mount's process")?;
    helper.mounter()
}

fn broken(e: std::io::Error) -> Error {
    Error::failed(format!("signals: {e}"))
}

fn serve_room(
    plan: &Plan,
    known_key: Option<KnownKey>,
    mounter: Mounter,
    signals: Signals,
    start: &mut dyn Start,
) -> Result<()> {
    let (dir, mountpoint) = (plan.room()?, plan.mountpoint()?);
    let open = OpenOptions {
        read_only: plan.read_only,
        accept_rollback: plan.accept_rollback,
        state_dir: plan.state_dir()?,
        known_key,
        ..OpenOptions::default()
    };
    let credential = plan.credential.credential()?;
    if plan.follow {
        let opened = bucket::follow_room(&dir, &credential, open);
        let (room, moments) = opened.map_err(|e| Error::room(&dir, e))?;
        return serve_following(plan, room, moments, mounter, signals, start);
    }
    let room = bucket::open_room(&dir, &credential, open).map_err(|e| Error::room(&dir, e))?;
    let room = Arc::new(room);
    let server = control(plan, &dir, &mountpoint, &mounter, RoomNow::of(&room))?;
    let mut schedule = None;
    let mut begun = |transport, device| {
        if let Some(server) = &server {
            server.mounted(transport, device);
        }
        if !room.is_read_only() {
            match Schedule::of_room(dir.clone(), &room) {
                Ok(started) => schedule = Some(started),
                Err(e) => tracing::warn!("no thread for automatic snapshots: {e}"),
            }
        }
    };
    let outcome = file_system(plan, &dir, &room)
        .and_then(|files| serve_mounted(plan, files, &mut begun, mounter, signals, start));
    drop(schedule);
    if let Some(server) = &server {
        server.stop_work();
        server.remove_name();
    }
    let closed = close(room, &dir);
    if let Some(server) = &server {
        server.closed(&closed);
    }
    match &closed {
        Ok(()) => tracing::info!("{} closed", dir.display()),
        Err(e) => tracing::error!("{e}"),
    }
    outcome.and(closed)
}

/// Answers on the control socket, if that can be.
fn control(
    plan: &Plan,
    dir: &Path,
    mountpoint: &Path,
    mounter: &Mounter,
    room: RoomNow,
) -> Result<Option<Server>> {
    // A room on a read-only disk has no lock, and may be mounted twice.
    let other = match plan.read_only {
        true => Client::find(dir)?,
        false => None,
    };
    let started = match other {
        Some(other) => Err(std::io::Error::other(format!(
            "process {} has the room mounted too, and has it",
            other.pid
        ))),
        None => {
            let mount = mounter.for_requests(plan);
            Server::start(dir, mountpoint, plan.read_only, mount, room)
        }
    };
    // A room that commands do not reach is still worth mounting.
    Ok(started
        .inspect_err(|e| {
            tracing::warn!(
                "no control socket for {}: {e}; commands will not reach the mounted room",
                dir.display()
            );
        })
        .ok())
}

/// Serves a room for reading that another machine writes to, as it becomes.
fn serve_following(
    plan: &Plan,
    room: Room,
    moments: Box<dyn bucket::Moments>,
    mounter: Mounter,
    signals: Signals,
    start: &mut dyn Start,
) -> Result<()> {
    let (dir, mountpoint) = (plan.room()?, plan.mountpoint()?);
    let following = Arc::new(Following::new(Arc::new(room)));
    let shown = Arc::downgrade(&following);
    let now = RoomNow::new(move || shown.upgrade().map(|following| following.0.shown()));
    let server = control(plan, &dir, &mountpoint, &mounter, now)?;
    let follower = Follower::start(&following, moments).map_err(|e| Error::host(&dir, e))?;
    let mut begun = |transport, device| {
        if let Some(server) = &server {
            server.mounted(transport, device);
        }
    };
    let files = following.clone();
    let outcome = serve_mounted(plan, files, &mut begun, mounter, signals, start);
    drop(follower);
    if let Some(server) = &server {
        server.stop_work();
        server.remove_name();
        server.closed(&Ok(()));
    }
    tracing::info!("{} closed", dir.display());
    outcome
}

/// What is mounted: the file system, with its snapshots or without, or one of them.
fn file_system<F: Snapshots + 'static>(
    plan: &Plan,
    dir: &Path,
    room: &Arc<F>,
) -> Result<Arc<dyn FileSystem>> {
    if let Some(name) = &plan.snapshot {
        return room.snapshot(name).map_err(|e| match e {
            room::Error::NotFound if room.is_shared() => Error::failed(format!(
                "{}: there is no snapshot {name}; a mount of the whole file system lists them in .snapshots",
                dir.display()
            )),
            room::Error::NotFound => snapshots::missing(dir, name),
            other => Error::room(dir, other),
        });
    }
    Ok(match plan.snapshot_directory() {
        Some(directory) => Arc::new(WithSnapshots::new(room.clone(), directory)),
        None => room.clone(),
    })
}

fn serve_shared(
    plan: &Plan,
    address: &str,
    mounter: Mounter,
    signals: Signals,
    start: &mut dyn Start,
) -> Result<()> {
    let name = plan.room()?;
    let failed = |e: &dyn std::fmt::Display| Error::failed(format!("{}: {e}", name.display()));
    let identity = Identity::parse(plan.credential.bytes()).map_err(|e| failed(&e))?;
    let renew = "ask for another: strongroom user renew";
    match identity.end() {
        Some(end) if end < output::now() => {
            let why = format!("the identity {}; {renew}", output::end(Some(end)));
            return Err(failed(&why));
        }
        Some(end) if end < output::now() + RENEW_BEFORE.as_secs() => {
            tracing::warn!("the identity {}; {renew}", output::end(Some(end)));
        }
        _ => {}
    }
    let mut options = ClientOptions::new(address);
    if let Some(seconds) = plan.timeout_s {
        options.timeout = Duration::from_secs(seconds);
        options.disk_timeout = options.disk_timeout.min(options.timeout);
    }
    let shared = SharedRoom::connect(options, &identity).map_err(|e| failed(&e))?;
    drop(identity);
    let shared = Arc::new(shared);
    let outcome = file_system(plan, &name, &shared)
        .and_then(|files| serve_mounted(plan, files, &mut |_, _| {}, mounter, signals, start));
    let closed = shared.end().map_err(|e| failed(&e));
    match &closed {
        Ok(()) => tracing::info!("{} closed", name.display()),
        Err(e) => tracing::error!("{e}; what was not durable is lost"),
    }
    outcome.and(closed)
}

/// Mounts and serves a file system; returns when it is unmounted. `begun`: called once it is mounted, with its device number.
fn serve_mounted(
    plan: &Plan,
    file_system: Arc<dyn FileSystem>,
    begun: &mut dyn FnMut(Transport, u64),
    mounter: Mounter,
    mut signals: Signals,
    start: &mut dyn Start,
) -> Result<()> {
    let (name, mountpoint) = (plan.room()?, plan.mountpoint()?);
    let syncing = Arc::downgrade(&file_system);
    start.opened()?;
    let options = plan.mount_options(&name);
    let connection = mounter.mount(&mountpoint, &options)?;
    let device = mount::table::at(&mountpoint).map_or(0, |mount| mount.device);
    let served = mount::serve(
        file_system,
        &mountpoint,
        &options,
        connection,
        Arc::new(mounter.clone()),
    );
    let mounted = served.map_err(|e| {
        // The first error is the one to report.
        let _ = mounter.unmount(&mountpoint, device, false);
        refused(&e)
    })?;
    mount::tune(&mountpoint);
    let transport = match mounted.transport() {
        mount::Transport::Device => Transport::Device,
        mount::Transport::IoUring => Transport::IoUring,
    };
    match transport {
        Transport::Device if plan.io_uring == Some(true) => tracing::warn!(
            "io_uring is not used for requests: the kernel does not offer it (Linux 6.14 with enable_uring of the \
             module fuse), or this process or mount cannot have it"
        ),
        Transport::Device => {}
        Transport::IoUring => tracing::info!("requests come over io_uring"),
    }
    begun(transport, device);
    start.mounted();
    tracing::info!("{} mounted at {}", name.display(), mountpoint.display());
    let (handle, at) = (signals.handle(), mountpoint.clone());
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                tracing::info!("signal {signal}: unmounting");
                if let Some(file_system) = syncing.upgrade()
                    && let Err(e) = file_system.sync()
                {
                    tracing::error!("commit before unmounting: {e}");
                }
                mounter.unmount_even_if_busy(&at, device);
            }
        })
        .map_err(broken)?;
    let served = mounted.wait().map_err(|e| Error::failed(e.to_string()));
    handle.close();
    served
}

/// The most files that a message about a full disk lists; the log has all.
const LISTED: usize = 50;

/// Closes the room, which is unmounted. Where the disk has no space for all that was written, says what is lost.
fn close(room: Arc<Room>, dir: &Path) -> Result<()> {
    if room.is_read_only() {
        return close_now(room, dir);
    }
    // Other failures come again when the room is closed.
    let listed = room.commit_or_list();
    let is_durable = listed
        .as_ref()
        .is_ok_and(|unsaved| unsaved.ranges.is_empty() && !unsaved.changes);
    let unsaved = listed.unwrap_or_default();
    let advice = match unsaved.ranges.is_empty() && !unsaved.changes {
        true => String::new(),
        false => snapshots::held(&room)
            .map(|held| snapshots::advice_when_full(dir, &held))
            .unwrap_or_default(),
    };
    let closed = close_now(room, dir);
    if let Err(error) = &closed
        && is_durable
        && error.exit() == Exit::NoSpace
    {
        // Times of access, and space that the next opening frees.
        tracing::warn!("{error}; everything that was written is durable");
        return Ok(());
    }
    if unsaved.ranges.is_empty() && !unsaved.changes {
        return closed;
    }
    if let Err(error) = &closed
        && error.exit() != Exit::NoSpace
    {
        return closed;
    }
    Err(Error::said(Exit::NoSpace, no_space(dir, &unsaved, &advice)))
}

/// What was lost when a room was unmounted whose disk is full.
fn no_space(dir: &Path, unsaved: &room::Unsaved, advice: &str) -> String {
    let mut text = format!(
        "{}: unmounted, but there is no space left where the room is stored, and some of what was written is lost:",
        dir.display()
    );
    for (number, range) in unsaved.ranges.iter().enumerate() {
        let line = format!(
            "{}: {} from byte {}",
            output::shown(range.path.as_ref()),
            output::count(range.len, "byte"),
            range.offset
        );
        tracing::error!("no space left, lost: {line}");
        if number < LISTED {
            text.push_str(&format!("\n  {line}"));
        }
    }
    if let Some(more) = unsaved
        .ranges
        .len()
        .checked_sub(LISTED)
        .filter(|more| *more > 0)
    {
        text.push_str(&format!("\n  and {more} more, which the mount's log lists"));
    }
    if unsaved.changes {
        text.push_str("\n  new names, removals and attributes since the last commit");
    }
    text.push_str(
        "\nEverything that was synced is saved. Free space on the disk before you mount the room again.",
    );
    if !advice.is_empty() {
        text.push('\n');
        text.push_str(advice);
    }
    text
}

/// Closes the room once nobody works on it any more; after a while commits it and leaves the rest to the end of the process.
fn close_now(mut room: Arc<Room>, dir: &Path) -> Result<()> {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    loop {
        match Arc::try_unwrap(room) {
            Ok(room) => return room.close().map_err(|e| Error::room(dir, e)),
            Err(shared) if Instant::now() > deadline => {
                return shared.sync().map_err(|e| Error::room(dir, e));
            }
            Err(shared) => room = shared,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Opens the log of a process in the background.
pub(crate) fn log_of(plan: &Plan) -> Result<File> {
    let path = match plan.log()? {
        Some(path) => path,
        None => default_log(&plan.room()?)
            .map_err(|e| Error::failed(format!("the log of the serving process: {e}")))?,
    };
    open_log(&path).map_err(|e| Error::host(&path, e))
}

/// Cuts the process off from the terminal it was started at: own session, no working directory, log instead of standard
/// error.
pub(crate) fn detach(log: &File) -> Result<()> {
    let broken = |e: std::io::Error| {
        Error::failed(format!(
            "the serving process could not be put into the background: {e}"
        ))
    };
    let nothing = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(broken)?;
    // Refused only to the leader of a process group, which a started process is not; then it keeps its old session.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").map_err(broken)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|e| broken(e.into()))?;
    rustix::stdio::dup2_stdout(&nothing).map_err(|e| broken(e.into()))?;
    rustix::stdio::dup2_stderr(log).map_err(|e| broken(e.into()))
}

/// `$XDG_STATE_HOME/strongroom/NAME.log`, else in `~/.local/state`. The name is the room's directory's: the log shows no more
/// than the directory does.
fn default_log(room: &Path) -> std::io::Result<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir)
        .join("strongroom");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&state)?;
    let mut name = room.file_name().unwrap_or("room".as_ref()).to_owned();
    name.push(".log");
    Ok(state.join(name))
}

fn open_log(path: &Path) -> std::io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > LOG_MAX) {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        std::fs::rename(path, old)?;
    }
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}
