//! The user's runtime directory, where sockets of this user's processes are: `strongroom` in `$XDG_RUNTIME_DIR`, else in
//! `/run/user/UID`, and for root in `/run`.
//!
//! Invariant: a directory named here is this user's alone, by its owner and mode; another one is passed over.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const NAME: &str = "strongroom";

/// The directory for new sockets, created where it is not there yet; `None`: this user has no runtime directory.
pub(crate) fn directory() -> Option<PathBuf> {
    bases().into_iter().find_map(|base| {
        if !is_safe(&std::fs::metadata(&base).ok()?, 0o022) {
            return None;
        }
        let dir = base.join(NAME);
        // It may be there already, and then is checked like any other.
        let _ = DirBuilder::new().mode(0o700).create(&dir);
        private(dir)
    })
}

/// Every directory that may hold sockets of this user's processes: they may have another environment.
pub(crate) fn directories() -> Vec<PathBuf> {
    let all = bases().into_iter().map(|base| base.join(NAME));
    all.filter_map(private).collect()
}

/// The usual directory of another user, which is not checked: only root looks there, and then checks who answers.
pub(crate) fn usual_of(user: u32) -> PathBuf {
    Path::new("/run/user").join(user.to_string()).join(NAME)
}

fn bases() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut bases: Vec<PathBuf> = given.filter(|dir| dir.is_absolute()).into_iter().collect();
    bases.push(Path::new("/run/user").join(user.as_raw().to_string()));
    if user.is_root() {
        bases.push("/run".into());
    }
    bases.dedup();
    bases
}

fn private(dir: PathBuf) -> Option<PathBuf> {
    let meta = std::fs::symlink_metadata(&dir).ok()?;
    if is_safe(&meta, 0o077) {
        return Some(dir);
    }
    tracing::info!(
        "{}: not used for sockets: it must be a directory of this user with mode 0700",
        dir.display()
    );
    None
}

/// Whether it is a directory of this user's that gives others none of these rights.
fn is_safe(meta: &Metadata, rights: u32) -> bool {
    meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & rights == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_directory_of_this_users_alone_is_used() {
        let place = tempfile::tempdir().unwrap();
        let (dir, link) = (place.path().join(NAME), place.path().join("link"));
        assert_eq!(private(dir.clone()), None);
        std::fs::create_dir(&dir).unwrap();
        for (mode, safe) in [(0o700, true), (0o755, false), (0o720, false)] {
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(private(dir.clone()).is_some(), safe, "{mode:o}");
        }
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert_eq!(private(link), None);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
            assert_eq!(private(dir), None);
        }
    }
}
