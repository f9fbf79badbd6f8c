//! Comparing what was copied with what it was copied from, file by file, both read again.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use room::{FileKind, Timestamp};

use super::digest::{self, Digest};
use super::give::{Kept, allowed_mode};
use super::place::MARK;
use crate::args::Global;
use crate::error::{Error, Result};
use crate::output::{self, Failures};
use crate::progress::Bar;
use crate::tree::{Fault, FileId, Meta, Source};
use crate::walk::walk;

/// What a file must be.
pub(crate) struct Expected<'e> {
    pub(crate) meta: &'e Meta,
    pub(crate) xattrs: Vec<(OsString, Vec<u8>)>,
    /// Target of a symbolic link.
    pub(crate) target: Option<OsString>,
    /// Of a regular file.
    pub(crate) digest: Option<Digest>,
    /// Another path that must lead to the same file.
    pub(crate) link: Option<&'e Path>,
}

/// A comparison under way.
pub(crate) struct Verifier<'a> {
    pub(crate) target: &'a dyn Source,
    /// Names the target in messages.
    pub(crate) target_name: String,
    pub(crate) kept: &'a Kept,
    pub(crate) global: &'a Global,
    pub(crate) bar: &'a Bar,
    pub(crate) failures: Failures,
    /// Files found equal in everything.
    pub(crate) equal: u64,
    /// Files that differ.
    pub(crate) different: u64,
    pub(crate) bytes: u64,
}

impl Verifier<'_> {
    /// Compares everything below `from` with what is below `to`, except what is known to have failed.
    pub(crate) fn trees(
        &mut self,
        source: &dyn Source,
        from: &Path,
        meta: &Meta,
        to: &Path,
        failed: &HashSet<PathBuf>,
    ) -> Result<()> {
        let mut links: HashMap<FileId, PathBuf> = HashMap::new();
        let mut unlisted = Vec::new();
        let place = |path: &Path| match path.strip_prefix(from) {
            Ok(below) if !below.as_os_str().is_empty() => to.join(below),
            _ => to.to_owned(),
        };
        walk(
            source,
            from,
            meta,
            &mut |step, path, meta| {
                let there = place(path);
                if step == crate::walk::Step::Enter
                    || failed.iter().any(|failed| there.starts_with(failed))
                {
                    return Ok(());
                }
                let link = links.get(&meta.id).cloned();
                if meta.nlink > 1 && meta.kind != FileKind::Directory && link.is_none() {
                    links.insert(meta.id, there.clone());
                }
                let link = link.filter(|_| meta.nlink > 1);
                match expected(source, path, meta, link.as_deref()) {
                    Ok(expected) => self.one(&there, &expected),
                    Err(fault) => {
                        self.differs(&there, &format!("its source cannot be read again: {fault}"));
                        Ok(())
                    }
                }
            },
            &mut |path, fault| {
                unlisted.push((place(path), fault));
                Ok(())
            },
        )?;
        for (path, fault) in unlisted {
            self.differs(
                &path,
                &format!("its source cannot be listed again: {fault}"),
            );
        }
        Ok(())
    }

    /// Compares one file.
    pub(crate) fn one(&mut self, path: &Path, expected: &Expected<'_>) -> Result<()> {
        self.bar.count(self.equal + self.different, self.bytes)?;
        match self.differences(path, expected) {
            Ok(differences) if differences.is_empty() => self.equal += 1,
            Ok(differences) => self.differs(path, &differences.join(", ")),
            Err(fault) if fault.is_not_found() => self.differs(path, "is missing"),
            Err(fault) if fault.ends_all() => {
                return Err(Error::at(self.words(path), fault));
            }
            Err(fault) => {
                self.different += 1;
                let error = Error::at(self.words(path), fault);
                self.failures.note(&error, self.global);
            }
        }
        Ok(())
    }

    fn words(&self, path: &Path) -> String {
        format!("{}{}", self.target_name, output::shown_path(path))
    }

    fn differs(&mut self, path: &Path, how: &str) {
        self.different += 1;
        let error = Error::failed(format!(
            "{}: differs from its source: {how}",
            self.words(path)
        ));
        self.failures.note(&error, self.global);
    }

    fn differences(
        &mut self,
        path: &Path,
        expected: &Expected<'_>,
    ) -> std::result::Result<Vec<String>, Fault> {
        let (meta, there) = (expected.meta, self.target.stat(path, false)?);
        if there.kind != meta.kind {
            return Ok(vec![format!(
                "it is a {}, not a {}",
                output::kind_word(there.kind),
                output::kind_word(meta.kind)
            )]);
        }
        let mut found = Vec::new();
        if let Some(digest) = expected.digest {
            self.bytes += meta.size;
            if there.size != meta.size {
                found.push(format!("size ({} instead of {})", there.size, meta.size));
            } else if digest::of(&*self.target.open(path)?, there.size)? != digest {
                found.push("contents".into());
            }
        }
        if let Some(target) = &expected.target
            && self.target.read_link(path)? != *target
        {
            found.push("target".into());
        }
        if matches!(there.kind, FileKind::CharDevice | FileKind::BlockDevice)
            && there.rdev != meta.rdev
        {
            found.push("device number".into());
        }
        // Owners are lost all together, or not at all.
        let owned = (there.uid, there.gid) == (meta.uid, meta.gid);
        if !owned && self.kept.owners_lost == 0 {
            found.push(format!(
                "owner ({}:{} instead of {}:{})",
                there.uid, there.gid, meta.uid, meta.gid
            ));
        }
        if there.kind != FileKind::Symlink && there.mode != allowed_mode(meta, &there) {
            found.push(format!(
                "mode ({:04o} instead of {:04o})",
                there.mode, meta.mode
            ));
        }
        if there.mtime != meta.mtime {
            found.push(format!(
                "time ({} instead of {})",
                time(there.mtime),
                time(meta.mtime)
            ));
        }
        let mut wanted = expected.xattrs.clone();
        wanted.retain(|(name, _)| name != MARK && !self.kept.xattrs_lost.contains_key(name));
        let mut has = self.target.xattrs(path)?;
        has.retain(|(name, _)| !self.kept.xattrs_lost.contains_key(name));
        for (name, value) in &wanted {
            if !has.iter().any(|(n, v)| n == name && v == value) {
                found.push(format!("attribute {}", output::shown(name)));
            }
        }
        for (name, _) in &has {
            if !wanted.iter().any(|(n, _)| n == name) {
                found.push(format!(
                    "attribute {}, which its source lacks",
                    output::shown(name)
                ));
            }
        }
        if let Some(first) = expected.link
            && self.target.stat(first, false)?.id != there.id
        {
            found.push(format!("it is no hard link to {}", self.words(first)));
        }
        Ok(found)
    }
}

fn time(t: Timestamp) -> String {
    format!("{}.{:09}", output::moment(t.secs), t.nanos)
}

fn expected<'e>(
    source: &dyn Source,
    path: &Path,
    meta: &'e Meta,
    link: Option<&'e Path>,
) -> std::result::Result<Expected<'e>, Fault> {
    let digest = match meta.kind {
        // Another name of what was compared already.
        FileKind::Regular if link.is_none() => Some(digest::of(&*source.open(path)?, meta.size)?),
        _ => None,
    };
    let target = match meta.kind {
        FileKind::Symlink => Some(source.read_link(path)?),
        _ => None,
    };
    Ok(Expected {
        meta,
        xattrs: source.xattrs(path)?,
        target,
        digest,
        link,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::HostTree;
    use std::os::unix::fs::PermissionsExt;

    /// Every kind of difference is made once, and must be named; and nothing else may be.
    #[test]
    fn every_difference_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let side = |name: &str| {
            let side = dir.path().join(name);
            std::fs::create_dir(&side).unwrap();
            for file in [
                "contents",
                "size",
                "mode",
                "time",
                "gone",
                "kind",
                "first",
                "attribute",
            ] {
                std::fs::write(side.join(file), b"the same on both sides").unwrap();
            }
            std::fs::hard_link(side.join("first"), side.join("second")).unwrap();
            std::os::unix::fs::symlink("there", side.join("link")).unwrap();
            side
        };
        let (a, b) = (side("a"), side("b"));
        for side in [&a, &b] {
            set_times(side);
        }
        assert_eq!(compared(&a, &b), (11, Vec::<String>::new()));
        std::fs::write(b.join("contents"), b"not the same on sides!").unwrap();
        std::fs::write(b.join("size"), b"the same on both sides and more").unwrap();
        std::fs::set_permissions(b.join("mode"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(b.join("gone")).unwrap();
        std::fs::remove_file(b.join("kind")).unwrap();
        std::fs::create_dir(b.join("kind")).unwrap();
        std::fs::remove_file(b.join("second")).unwrap();
        std::fs::copy(b.join("first"), b.join("second")).unwrap();
        std::fs::remove_file(b.join("link")).unwrap();
        std::os::unix::fs::symlink("elsewhere", b.join("link")).unwrap();
        let set = rustix::fs::setxattr(
            a.join("attribute"),
            "user.a",
            b"1",
            rustix::fs::XattrFlags::empty(),
        );
        let mut expected = vec![
            "contents", "gone", "kind", "link", "mode", "second", "size", "time",
        ];
        if set.is_ok() {
            expected.insert(0, "attribute");
        } else {
            eprintln!("skipped: attributes, which this file system does not have");
        }
        set_times(&b);
        let file = std::fs::File::open(b.join("time")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let (_, found) = compared(&a, &b);
        assert_eq!(found, expected);
    }

    fn set_times(dir: &Path) {
        let entries = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        for path in entries.chain([dir.to_owned()]) {
            let times = rustix::fs::Timestamps {
                last_access: rustix::fs::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                last_modification: rustix::fs::Timespec {
                    tv_sec: 1_000_000_000,
                    tv_nsec: 0,
                },
            };
            rustix::fs::utimensat(
                rustix::fs::CWD,
                &path,
                &times,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            )
            .unwrap();
        }
    }

    /// How many files are equal, and the names of those that are not.
    fn compared(a: &Path, b: &Path) -> (u64, Vec<String>) {
        let global = Global {
            json: false,
            verbose: 0,
            quiet: true,
            confinement: Default::default(),
        };
        let bar = Bar::counting("comparing", &global);
        let (kept, tree) = (Kept::default(), HostTree::with_top(a));
        let mut found = Vec::new();
        let meta = tree.stat(a, true).unwrap();
        let mut equal = 0;
        // One file at a time, so that each difference has a name.
        let mut names: Vec<_> = tree
            .list(a)
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.sort_unstable();
        let mut verifier = Verifier {
            target: &tree,
            target_name: String::new(),
            kept: &kept,
            global: &global,
            bar: &bar,
            failures: Failures::default(),
            equal: 0,
            different: 0,
            bytes: 0,
        };
        verifier.trees(&tree, a, &meta, b, &HashSet::new()).unwrap();
        equal += verifier.equal;
        let different = verifier.different;
        for name in names {
            let meta = tree.stat(&a.join(&name), false).unwrap();
            let before = verifier.different;
            let first = b.join("first");
            let link = (name == "second").then_some(first.as_path());
            let expected = expected(&tree, &a.join(&name), &meta, link).unwrap();
            verifier.one(&b.join(&name), &expected).unwrap();
            if verifier.different > before {
                found.push(name.to_string_lossy().into_owned());
            }
        }
        assert_eq!(different, found.len() as u64, "{found:?}");
        (equal, found)
    }
}
