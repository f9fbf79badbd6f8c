//! A socket file that is its owner's alone from its first moment.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that may wait to be taken.
const BACKLOG: i32 = 128;

/// Listens on a new socket file of mode 0600. Nobody else can connect in between, whatever the process's umask.
pub fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let kind = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode that the socket has before it is bound (Linux), less the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // A umask may have taken the owner's own rights.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_is_private_before_anybody_can_connect() {
        let dir = std::env::temp_dir().join(format!("strongroom-private-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("socket");
        let before = rustix::process::umask(Mode::empty());
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let bound = path.metadata().unwrap().permissions().mode() & 0o777;
        std::fs::remove_file(&path).unwrap();
        let listener = listen_privately(&path).unwrap();
        rustix::process::umask(before);
        let listening = path.metadata().unwrap().permissions().mode() & 0o777;
        drop(listener);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((bound, listening), (0o600, 0o600));
    }
}
