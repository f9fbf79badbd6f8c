//! Mounting: by the kernel directly for those who may, else through `fusermount3`; and having a mount written back.
//!
//! `default_permissions` is part of every mount made here; there is no way to leave it out.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::{MountFlags, OpenTreeFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::detach::{Detach, detach_own, fusermount};
use crate::error::MountError;
use crate::options::{AccessTimes, MountOptions, Synchronous};

/// What `mount` shows as the type, after `fuse.`.
const SUBTYPE: &str = "strongroom";

/// Mounts on `mountpoint` (absolute, a directory); returns the connection, for [`serve`](crate::serve).
///
/// # Errors
/// `NoFuse`, `NoFusermount`, `AllowOther`, `Refused`.
pub fn attach(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    match attach_directly(mountpoint, options)? {
        Some(fd) => Ok(fd),
        None => attach_by_helper(mountpoint, options),
    }
}

/// `None`: this user may not.
fn attach_directly(
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Option<OwnedFd>, MountError> {
    let device = match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(device) => device,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(e) => return Err(MountError::NoFuse(e)),
    };
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    // The kernel leaves access times of a FUSE mount to the server: these say in the mount table what the server does.
    let (never, strict) = (AccessTimes::Never, AccessTimes::Strict);
    flags.set(MountFlags::NOATIME, options.access_times == never);
    flags.set(MountFlags::STRICTATIME, options.access_times == strict);
    flags.set(MountFlags::NODIRATIME, !options.directory_access_times);
    flags.set(MountFlags::LAZYTIME, options.lazy_times);
    // With SYNCHRONOUS the kernel calls fsync after each write; the server does the rest.
    flags.set(
        MountFlags::SYNCHRONOUS,
        options.synchronous == Synchronous::All,
    );
    flags.set(
        MountFlags::DIRSYNC,
        options.synchronous == Synchronous::Names,
    );
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let refused = |reason: String| MountError::Refused {
        path: mountpoint.to_owned(),
        reason,
    };
    let data = CString::new(data).map_err(|e| refused(e.to_string()))?;
    match rustix::mount::mount(
        options.name.as_str(),
        mountpoint,
        format!("fuse.{SUBTYPE}"),
        flags,
        data.as_c_str(),
    ) {
        Ok(()) => Ok(Some(device.into())),
        Err(Errno::PERM) => Ok(None),
        Err(Errno::NODEV) => Err(MountError::NoFuse(Errno::NODEV.into())),
        Err(e) => Err(refused(e.to_string())),
    }
}

/// Has `fusermount3` mount, which is set-user-id root, and receives the connection from it.
fn attach_by_helper(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |e: io::Error| MountError::Refused {
        path: mountpoint.to_owned(),
        reason: e.to_string(),
    };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| failed(e.into()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| failed(e.into()))?;
    let mut helper = Command::new(fusermount().ok_or(MountError::NoFusermount)?)
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    drop(theirs);
    let received = receive(&ours);
    drop(ours);
    let mut said = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        // What it says is only for the message.
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = helper.wait();
    match received {
        Ok(Some(fd)) => {
            rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
            Ok(fd)
        }
        Ok(None) if said.contains("user_allow_other") => Err(MountError::AllowOther),
        Ok(None) if said.contains("unknown option 'lazytime'") => Err(MountError::Refused {
            path: mountpoint.to_owned(),
            reason: "this fusermount3 does not have lazytime: leave it out, or mount as root"
                .into(),
        }),
        Ok(None) => Err(MountError::Refused {
            path: mountpoint.to_owned(),
            reason: said.trim().trim_start_matches("fusermount3: ").to_owned(),
        }),
        Err(e) => Err(failed(e)),
    }
}

/// The helper adds nosuid and nodev by itself.
fn helper_options(options: &MountOptions) -> String {
    // Commas would end the name; the helper understands a backslash before them.
    let name = options.name.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("default_permissions,subtype={SUBTYPE},fsname={name}");
    for (wanted, word) in [
        (options.read_only, "ro"),
        (!options.exec, "noexec"),
        (options.allow_other, "allow_other"),
        (options.access_times == AccessTimes::Never, "noatime"),
        // Strict access times and none of directories are the server's alone; no fusermount3 before 3.15 knows their names.
        (options.lazy_times, "lazytime"),
        (options.synchronous == Synchronous::All, "sync"),
        (options.synchronous == Synchronous::Names, "dirsync"),
    ] {
        if wanted {
            list.push(',');
            list.push_str(word);
        }
    }
    list
}

/// One descriptor; `None`: the other side closed without sending one.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut iov = [IoSliceMut::new(&mut byte)];
        match rustix::net::recvmsg(
            socket.as_fd(),
            &mut iov,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.next().and_then(|mut fds| fds.next()))
}

/// Who unmounts a mount and has the kernel write it back: the process that serves it, or another in its place.
///
/// Owns no descriptor: a thread without any uses it.
pub trait Attachment: Send + Sync {
    /// As [`detach_own`] of a mount in which nothing is open.
    ///
    /// # Errors
    /// As [`detach_own`].
    fn detach(&self, mountpoint: &Path, device: u64) -> Result<(), MountError>;

    /// As [`write_back`]. An error is none to report: the kernel's own interval then has to do.
    fn write_back(&self, mountpoint: &Path, device: u64);

    /// The thread, by its number, whose requests [`Self::write_back`] causes; `None`: the caller.
    fn thread(&self) -> Option<u32>;
}

/// The process that serves the mount does it itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Itself;

impl Attachment for Itself {
    fn detach(&self, mountpoint: &Path, device: u64) -> Result<(), MountError> {
        match detach_own(mountpoint, device, Detach::Unused) {
            // As it should be.
            Err(MountError::NotMounted(_)) => Ok(()),
            ended => ended,
        }
    }

    fn write_back(&self, mountpoint: &Path, device: u64) {
        let _ = write_back(mountpoint, device);
    }

    fn thread(&self) -> Option<u32> {
        None
    }
}

/// Has the kernel send everything that programs wrote into the mount at `mountpoint`, if that has this device number. It is on its
/// way when this returns, not yet all served.
///
/// # Errors
/// The mount is ending, or this user may not read its root.
pub fn write_back(mountpoint: &Path, device: u64) -> io::Result<()> {
    let root = root_of(mountpoint)?;
    if rustix::fs::fstat(&root)?.st_dev == device {
        rustix::fs::syncfs(&root)?;
    }
    Ok(())
}

/// The directory that is mounted at `mountpoint`. Root reaches it through a mount of its own that nobody sees, or nobody could
/// unmount meanwhile.
fn root_of(mountpoint: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let of_its_own = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let root = match rustix::mount::open_tree(CWD, mountpoint, of_its_own) {
        Ok(tree) => rustix::fs::openat(&tree, ".", flags, Mode::empty()),
        Err(_) => rustix::fs::open(mountpoint, flags, Mode::empty()),
    };
    Ok(root?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detach::detach;

    #[test]
    fn a_mount_that_is_being_written_back_can_be_unmounted() {
        let dir = tempfile::tempdir().unwrap();
        let mounted = rustix::mount::mount("none", dir.path(), "tmpfs", MountFlags::empty(), None);
        if let Err(e) = mounted {
            eprintln!("skipped: mounting needs root: {e}");
            return;
        }
        let _root = root_of(dir.path()).unwrap();
        let ended = detach(dir.path(), Detach::Unused);
        if ended.is_err() {
            // Not to be left behind.
            detach(dir.path(), Detach::Lazily).unwrap();
        }
        ended.unwrap();
    }

    #[test]
    fn a_comma_in_the_name_does_not_end_it() {
        let options = MountOptions {
            name: "a,suid".into(),
            allow_other: false,
            exec: true,
            ..Default::default()
        };
        assert_eq!(
            helper_options(&options),
            "default_permissions,subtype=strongroom,fsname=a\\,suid"
        );
    }
}
