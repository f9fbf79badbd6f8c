//! Landlock: which files, ports and processes are within reach.
//!
//! Invariant: every right that the kernel knows up to ABI 6 is handled, so what no rule names is refused.

use std::fmt;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::Profile;

/// The newest rights for files that are handled: device ioctls.
const FILES: ABI = ABI::V5;
/// TCP ports.
const PORTS: ABI = ABI::V4;

/// What the C library and Rust's own look at in any process, and what describes the machine. Nothing secret.
const ALWAYS_READ: &[&str] = &[
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/locks",
    "/proc/sys",
    "/proc/vmstat",
    "/sys/block",
    "/sys/devices/system/cpu",
    "/sys/devices/virtual/block",
    "/sys/fs/cgroup",
    "/dev/urandom",
    "/dev/random",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];
/// Sinks, and the terminal at which a passphrase is asked for.
const ALWAYS_WRITTEN: &[&str] = &["/dev/null", "/dev/zero", "/dev/tty"];
/// Names of machines: the resolver's settings, which are replaced while a process runs, and its modules.
const RESOLVER: &[&str] = &["/etc", "/run/systemd/resolve", "/usr/lib", "/lib", "/lib64"];
/// Programs and what they load.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];

/// How much of it is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// All that the profile asks for.
    Wholly,
    /// What this kernel knows of it.
    Partly,
    /// Nothing: the kernel has no Landlock, or it is switched off.
    NotAtAll,
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wholly => "yes",
            Self::Partly => "partly",
            Self::NotAtAll => "no",
        })
    }
}

/// Restricts the calling thread, and those it starts.
pub(crate) fn restrict(profile: &Profile) -> Result<Enforced, RulesetError> {
    let mut ports = BitFlags::from(AccessNet::BindTcp);
    if !profile.network.connects() {
        ports |= AccessNet::from_all(PORTS);
    }
    let mut scopes = BitFlags::from(Scope::Signal);
    // A service manager of an older kind learns by an abstract socket that the service is ready.
    let notified = std::env::var_os("NOTIFY_SOCKET");
    if !notified.is_some_and(|socket| socket.as_encoded_bytes().starts_with(b"@")) {
        scopes |= Scope::AbstractUnixSocket;
    }
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(FILES))?
        .handle_access(ports)?
        .scope(scopes)?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(FILES) & !AccessFs::Execute;
    let mut allowed: Vec<(&Path, BitFlags<AccessFs>)> = Vec::new();
    allowed.extend(ALWAYS_READ.iter().map(|path| (Path::new(path), read)));
    allowed.extend(ALWAYS_WRITTEN.iter().map(|path| (Path::new(path), write)));
    if profile.network.connects() || !profile.network.ports().is_empty() {
        allowed.extend(RESOLVER.iter().map(|path| (Path::new(path), read)));
    }
    if profile.programs {
        let run = read | AccessFs::Execute;
        allowed.extend(PROGRAMS.iter().map(|path| (Path::new(path), run)));
    }
    let list = BitFlags::from(AccessFs::ReadDir);
    allowed.extend(profile.list.iter().map(|path| (path.as_path(), list)));
    let sockets = AccessFs::MakeSock | AccessFs::RemoveFile;
    allowed.extend(profile.sockets.iter().map(|path| (path.as_path(), sockets)));
    allowed.extend(profile.read.iter().map(|path| (path.as_path(), read)));
    allowed.extend(profile.write.iter().map(|path| (path.as_path(), write)));
    for (path, rights) in allowed {
        // What is not there needs no rule: it can be neither read nor written.
        let Ok(file) = PathFd::new(path) else {
            continue;
        };
        let rights = match path.is_dir() {
            true => rights,
            false => rights & AccessFs::from_file(FILES),
        };
        if rights.is_empty() {
            continue;
        }
        // A pipe or a file in memory, as a shell's <(…) gives it, takes no rule and needs none.
        let without = rules.try_clone();
        rules = match (rules.add_rule(PathBeneath::new(file, rights)), without) {
            (Ok(rules), _) => rules,
            (Err(e), Ok(without)) => {
                tracing::debug!("no rule for {}: {e}", path.display());
                without
            }
            (Err(e), Err(_)) => return Err(e),
        };
    }
    for port in profile.network.ports() {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Enforced::Wholly,
        RulesetStatus::PartiallyEnforced => Enforced::Partly,
        RulesetStatus::NotEnforced => Enforced::NotAtAll,
    })
}
