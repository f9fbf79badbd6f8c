//! What a member of a tar stream must be as a file, remembered for the comparison at the end.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use import::tar::{Member, MemberKind};
use room::{FileKind, Timestamp};

use crate::acls::{self, Names};
use crate::copy::digest::Digest;
use crate::copy::give::Kept;
use crate::copy::place;
use crate::copy::verify::Expected;
use crate::tree::{FileId, Meta};

/// Entries of an access list that says no more than the mode: what follows its version, in bytes.
const SMALL_ACL: usize = 3 * 8;

/// What a file must be.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) meta: Meta,
    pub(super) xattrs: Vec<(OsString, Vec<u8>)>,
    pub(super) target: Option<OsString>,
    pub(super) digest: Option<Digest>,
    pub(super) link: Option<PathBuf>,
}

impl Record {
    pub(super) fn expected(&self) -> Expected<'_> {
        Expected {
            meta: &self.meta,
            xattrs: self.xattrs.clone(),
            target: self.target.clone(),
            digest: self.digest,
            link: self.link.as_deref(),
        }
    }
}

/// By name. The later of two counts, as everywhere in these headers.
fn each_once(mut xattrs: Vec<(OsString, Vec<u8>)>) -> Vec<(OsString, Vec<u8>)> {
    xattrs.reverse();
    // Keeps the order of those with one name.
    xattrs.sort_by(|a, b| a.0.cmp(&b.0));
    xattrs.dedup_by(|b, a| a.0 == b.0);
    xattrs
}

/// What a member must be, but for its contents.
pub(super) fn of(member: &Member, names: &Names, kept: &mut Kept) -> Record {
    let time = |(secs, nanos): (i64, u32)| Timestamp { secs, nanos };
    let (mut size, mut rdev, mut target) = (0, 0, None);
    let kind = match &member.kind {
        MemberKind::File { size: len, .. } => {
            size = *len;
            FileKind::Regular
        }
        MemberKind::Symlink(to) => {
            target = Some(OsString::from_vec(to.clone()));
            FileKind::Symlink
        }
        MemberKind::Directory => FileKind::Directory,
        MemberKind::Fifo => FileKind::Fifo,
        MemberKind::CharDevice(major, minor) => {
            rdev = rustix::fs::makedev(*major, *minor);
            FileKind::CharDevice
        }
        MemberKind::BlockDevice(major, minor) => {
            rdev = rustix::fs::makedev(*major, *minor);
            FileKind::BlockDevice
        }
        MemberKind::HardLink(_) | MemberKind::Other(_) => FileKind::Regular,
    };
    let xattrs = member
        .xattrs
        .iter()
        .filter(|(name, _)| name != place::MARK.as_bytes())
        .map(|(name, value)| (OsString::from_vec(name.clone()), value.clone()));
    let mut xattrs = each_once(xattrs.collect());
    for (text, name) in member.acls.iter().zip(acls::ATTRIBUTES) {
        let Some(text) = text else { continue };
        if text.is_empty() || xattrs.iter().any(|(known, _)| known == name) {
            continue;
        }
        match acls::encoded(text, names) {
            Some(value) if name.ends_with("access") && value.len() <= 4 + SMALL_ACL => {}
            Some(value) => xattrs.push((name.into(), value)),
            None => *kept.xattrs_lost.entry(name.into()).or_default() += 1,
        }
    }
    let meta = Meta {
        id: FileId(0, 0),
        kind,
        mode: member.mode,
        uid: member.uid,
        gid: member.gid,
        nlink: 1,
        size,
        allocated: 0,
        rdev,
        atime: time(member.atime.unwrap_or(member.mtime)),
        mtime: time(member.mtime),
        ctime: time(member.mtime),
        btime: None,
    };
    Record {
        meta,
        xattrs,
        target,
        digest: None,
        link: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_attributes_that_are_named_twice_the_later_count() {
        let named = |value: u8| {
            (0..200_u32)
                .map(move |n| (OsString::from(format!("user.{}", n * 7 % 200)), vec![value]))
        };
        let once = each_once(named(1).chain(named(2)).collect());
        assert_eq!(once.len(), 200);
        assert!(once.iter().all(|(_, value)| value == &[2]));
    }
}
