//! POSIX access control lists as extended attributes carry them, and how they and the mode follow each other.
//!
//! Layout (Linux, `include/uapi/linux/posix_acl_xattr.h`): version 2 as u32, then entries of tag u16, permissions u16,
//! id u32, all little-endian, in the order user, named users, group, named groups, mask, others. Rules: POSIX 1003.1e
//! draft 17 and acl(5).

use catalog::FileKind;

use crate::{Error, Result};

/// The list that access is checked against.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that new files in a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries that name nobody.
const NO_ID: u32 = u32::MAX;
/// Most entries; the kernel's own bound follows from the size of an extended attribute.
const ENTRIES_MAX: usize = 8191;

/// Names and values of extended attributes.
pub(crate) type Xattrs = Vec<(&'static [u8], Vec<u8>)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// Whom an entry of a list speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The file's owner.
    Owner,
    /// The user of this number.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// The group of this number.
    Group(u32),
    /// What named users, the file's group and named groups have at most.
    Mask,
    /// Everybody else.
    Other,
}

/// A checked list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Reads and checks a list. An empty one is `None`: it means no list.
    pub fn parse(value: &[u8]) -> Result<Option<Self>> {
        const BAD: Error = Error::InvalidArgument("not a valid access control list");
        let (version, entries) = value.split_first_chunk::<4>().ok_or(BAD)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::NotSupported(
                "an access control list of another version",
            ));
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() || entries.len() > ENTRIES_MAX {
            return Err(BAD);
        }
        let entries: Vec<Entry> = entries
            .iter()
            .map(|e| Entry {
                tag: u16::from_le_bytes([e[0], e[1]]),
                permissions: u16::from_le_bytes([e[2], e[3]]),
                id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            })
            .collect();
        if entries.is_empty() {
            return Ok(None);
        }
        let count = |tag| entries.iter().filter(|e| e.tag == tag).count();
        let named = count(USER) + count(GROUP);
        let in_order = entries.is_sorted_by_key(|e| e.tag);
        let known = entries.iter().all(|e| {
            let names_someone = matches!(e.tag, USER | GROUP);
            matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER)
                && e.permissions <= 7
                && (!names_someone || e.id != NO_ID)
        });
        let complete = count(USER_OBJ) == 1 && count(GROUP_OBJ) == 1 && count(OTHER) == 1;
        if !known || !in_order || !complete || count(MASK) > 1 || (named > 0 && count(MASK) == 0) {
            return Err(BAD);
        }
        Ok(Some(Self(entries)))
    }

    /// The entries in their order, each with its permissions (4 read, 2 write, 1 execute or search).
    pub fn entries(&self) -> impl Iterator<Item = (Who, u16)> + '_ {
        self.0.iter().map(|e| {
            let who = match e.tag {
                USER_OBJ => Who::Owner,
                USER => Who::User(e.id),
                GROUP_OBJ => Who::OwningGroup,
                GROUP => Who::Group(e.id),
                MASK => Who::Mask,
                _ => Who::Other,
            };
            (who, e.permissions)
        })
    }

    /// The list as an extended attribute carries it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            value.extend(e.tag.to_le_bytes());
            value.extend(e.permissions.to_le_bytes());
            value.extend(
                if matches!(e.tag, USER | GROUP) {
                    e.id
                } else {
                    NO_ID
                }
                .to_le_bytes(),
            );
        }
        value
    }

    fn permissions(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|e| e.tag == tag).map(|e| e.permissions)
    }

    fn set(&mut self, tag: u16, permissions: u16) {
        if let Some(e) = self.0.iter_mut().find(|e| e.tag == tag) {
            e.permissions = permissions;
        }
    }

    /// The entry that the group bits of a mode show: the mask if there is one.
    fn group_class(&self) -> u16 {
        if self.permissions(MASK).is_some() {
            MASK
        } else {
            GROUP_OBJ
        }
    }

    /// The nine permission bits that show this list.
    pub(crate) fn mode(&self) -> u16 {
        let bits = |tag| self.permissions(tag).unwrap_or(0);
        bits(USER_OBJ) << 6 | bits(self.group_class()) << 3 | bits(OTHER)
    }

    /// Whether the nine bits say everything the list says.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// Makes the list follow a mode that was set (chmod).
    pub(crate) fn follow_mode(&mut self, mode: u16) {
        self.set(USER_OBJ, mode >> 6 & 7);
        self.set(self.group_class(), mode >> 3 & 7);
        self.set(OTHER, mode & 7);
    }

    /// Removes permissions that a new file's mode does not include.
    fn restrict(&mut self, mode: u16) {
        let group = self.group_class();
        for (tag, bits) in [
            (USER_OBJ, mode >> 6 & 7),
            (group, mode >> 3 & 7),
            (OTHER, mode & 7),
        ] {
            if let Some(permissions) = self.permissions(tag) {
                self.set(tag, permissions & bits);
            }
        }
    }
}

/// What a new file begins with.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) mode: u16,
    pub(crate) xattrs: Xattrs,
}

/// Mode and lists of a new file: from the directory's default list if it has one, else from the umask.
pub(crate) fn inherit(
    default: Option<&[u8]>,
    kind: FileKind,
    mode: u16,
    umask: u16,
) -> Result<Inherited> {
    if kind == FileKind::Symlink {
        return Ok(Inherited {
            mode: 0o777,
            xattrs: Vec::new(),
        });
    }
    let Some(mut list) = default.map(Acl::parse).transpose()?.flatten() else {
        return Ok(Inherited {
            mode: mode & !umask,
            xattrs: Vec::new(),
        });
    };
    let mut xattrs = Xattrs::new();
    if kind == FileKind::Directory {
        xattrs.push((DEFAULT, list.encode()));
    }
    list.restrict(mode);
    let mode = mode & !0o777 | list.mode();
    if !list.is_minimal() {
        xattrs.push((ACCESS, list.encode()));
    }
    Ok(Inherited { mode, xattrs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries
            .iter()
            .map(|(tag, permissions, id)| Entry {
                tag: *tag,
                permissions: *permissions,
                id: *id,
            })
            .collect())
    }

    fn rich() -> Acl {
        list(&[
            (USER_OBJ, 7, NO_ID),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, NO_ID),
            (GROUP, 7, 50),
            (MASK, 7, NO_ID),
            (OTHER, 4, NO_ID),
        ])
    }

    #[test]
    fn a_list_reads_back_as_written() {
        assert_eq!(Acl::parse(&rich().encode()).unwrap(), Some(rich()));
        assert_eq!(Acl::parse(&VERSION.to_le_bytes()).unwrap(), None);
    }

    #[test]
    fn malformed_lists_are_refused() {
        let good = rich().encode();
        assert!(Acl::parse(&good[..good.len() - 1]).is_err());
        assert!(Acl::parse(&[]).is_err());
        assert!(Acl::parse(&[1, 0, 0, 0]).is_err());
        for broken in [
            list(&[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 7, NO_ID)]),
            list(&[
                (USER_OBJ, 8, NO_ID),
                (GROUP_OBJ, 7, NO_ID),
                (OTHER, 0, NO_ID),
            ]),
            list(&[
                (GROUP_OBJ, 7, NO_ID),
                (USER_OBJ, 7, NO_ID),
                (OTHER, 0, NO_ID),
            ]),
            list(&[
                (USER_OBJ, 7, NO_ID),
                (USER, 7, 3),
                (GROUP_OBJ, 7, NO_ID),
                (OTHER, 0, NO_ID),
            ]),
            list(&[
                (USER_OBJ, 7, NO_ID),
                (GROUP_OBJ, 7, NO_ID),
                (OTHER, 0, NO_ID),
                (0x40, 0, NO_ID),
            ]),
        ] {
            assert!(Acl::parse(&broken.encode()).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn the_mode_shows_the_mask_and_chmod_sets_it() {
        let mut acl = rich();
        assert_eq!(acl.mode(), 0o774);
        acl.follow_mode(0o640);
        assert_eq!(
            (acl.permissions(MASK), acl.permissions(GROUP_OBJ)),
            (Some(4), Some(5))
        );
        assert_eq!(acl.mode(), 0o640);
    }

    #[test]
    fn a_default_list_overrides_the_umask_and_is_cut_by_the_mode() {
        let default = rich().encode();
        let file = inherit(Some(&default), FileKind::Regular, 0o644, 0o077).unwrap();
        assert_eq!(file.mode, 0o644);
        assert_eq!(file.xattrs.len(), 1);
        let directory = inherit(Some(&default), FileKind::Directory, 0o2755, 0).unwrap();
        assert_eq!((directory.mode, directory.xattrs.len()), (0o2754, 2));
        let plain = inherit(None, FileKind::Regular, 0o666, 0o027).unwrap();
        assert_eq!((plain.mode, plain.xattrs.len()), (0o640, 0));
        let minimal = list(&[
            (USER_OBJ, 7, NO_ID),
            (GROUP_OBJ, 5, NO_ID),
            (OTHER, 0, NO_ID),
        ])
        .encode();
        let file = inherit(Some(&minimal), FileKind::Regular, 0o666, 0).unwrap();
        assert_eq!((file.mode, file.xattrs.len()), (0o640, 0));
    }
}
