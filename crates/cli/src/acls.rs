//! Access lists as text, as GNU tar (`--acls`) and star write them, and in the form that extended attributes carry (acl(5),
//! `include/uapi/linux/posix_acl_xattr.h`).

use std::path::Path;

use room::acl::{Acl, Who};

/// The attributes that carry the lists: of access, and default.
pub(crate) const ATTRIBUTES: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// The text of an attribute's list, in numbers. `None`: it is none.
pub(crate) fn text(value: &[u8]) -> Option<Vec<u8>> {
    let list = Acl::parse(value).ok()??;
    let entry = |(who, bits): (Who, u16)| {
        let letter = |bit, letter| if bits & bit == 0 { '-' } else { letter };
        let who = match who {
            Who::Owner => "user:".to_owned(),
            Who::User(id) => format!("user:{id}"),
            Who::OwningGroup => "group:".to_owned(),
            Who::Group(id) => format!("group:{id}"),
            Who::Mask => "mask:".to_owned(),
            Who::Other => "other:".to_owned(),
        };
        format!(
            "{who}:{}{}{}\n",
            letter(4, 'r'),
            letter(2, 'w'),
            letter(1, 'x')
        )
    };
    Some(list.entries().map(entry).collect::<String>().into_bytes())
}

/// "user::rwx,user:ada:r--,group::r-x,mask::r-x,other::---", by commas or lines, in any order, "#" beginning a remark; an entry may
/// end in ":NUMBER", the numeric id. `None`: it is none, or names somebody this machine does not know.
pub(crate) fn encoded(text: &[u8], names: &Names) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']) {
        let entry = entry.split('#').next()?.trim();
        if entry.is_empty() {
            continue;
        }
        let mut fields = entry.split(':');
        let (tag, who, letters) = (fields.next()?, fields.next()?, fields.next()?);
        let number = fields.next();
        let id = |list: &[(String, u32)]| -> Option<u32> {
            number
                .and_then(|number| number.parse().ok())
                .or_else(|| who.parse().ok())
                .or_else(|| list.iter().find(|(name, _)| name == who).map(|(_, id)| *id))
        };
        let (tag, id) = match (tag, who) {
            ("user" | "u", "") => (0x01, u32::MAX),
            ("user" | "u", _) => (0x02, id(&names.users)?),
            ("group" | "g", "") => (0x04, u32::MAX),
            ("group" | "g", _) => (0x08, id(&names.groups)?),
            ("mask" | "m", _) => (0x10, u32::MAX),
            ("other" | "o", _) => (0x20, u32::MAX),
            _ => return None,
        };
        let mut bits = 0_u16;
        for letter in letters.trim().chars() {
            bits |= match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            };
        }
        entries.push((tag as u16, id, bits));
    }
    if entries.is_empty() {
        return None;
    }
    entries.sort_unstable();
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(bits.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Some(value)
}

/// Names of this machine's users and groups with their numbers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: Vec<(String, u32)>,
    groups: Vec<(String, u32)>,
}

impl Names {
    pub(crate) fn of_this_machine() -> Self {
        Self {
            users: list(Path::new("/etc/passwd")),
            groups: list(Path::new("/etc/group")),
        }
    }
}

/// The first and third field of each line.
fn list(file: &Path) -> Vec<(String, u32)> {
    std::fs::read_to_string(file)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_as_text_is_the_one_the_kernel_has() {
        let names = Names {
            users: vec![("ada".into(), 1001)],
            groups: vec![("staff".into(), 50)],
        };
        let value = encoded(
            b"user::rwx\nuser:ada:r--,group::r-x,group:staff:-w-\nmask::rwx #effective\nother::---\nuser:nobody:--x:65534",
            &names,
        )
        .unwrap();
        assert_eq!(encoded(&text(&value).unwrap(), &names).unwrap(), value);
        let parsed: Vec<_> = Acl::parse(&value).unwrap().unwrap().entries().collect();
        use Who::*;
        assert_eq!(
            parsed,
            [
                (Owner, 7),
                (User(1001), 4),
                (User(65534), 1),
                (OwningGroup, 5),
                (Group(50), 2),
                (Mask, 7),
                (Other, 0)
            ]
        );
        for bad in [
            b"user:unknown:rwx".as_slice(),
            b"user",
            b"x::rwx",
            b"user::rwz",
            b"",
            b"\xFF",
        ] {
            assert_eq!(encoded(bad, &names), None);
        }
    }
}
