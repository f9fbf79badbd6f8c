//! Whether a caller is in a group, and may keep set-ID bits: a request names one group of the process, and the rest is in `/proc`.

use model::Inode;

use crate::server::Caller;

const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// CAP_FSETID among a process's capabilities.
const KEEPS_SET_ID: u64 = 1 << 4;

impl Caller {
    /// Whether a change of the file's data by this caller, without the privilege to keep it, takes the set-group-ID bit from
    /// a file that its group may not execute. Where the group may, every such change does. The rule is Linux's
    /// (`setattr_should_drop_sgid`). The kernel applies it, but its requests do not carry the result.
    pub(crate) fn loses_setgid(&self, inode: &Inode) -> bool {
        inode.mode & (SET_GID | GROUP_EXECUTE) == SET_GID && !self.is_in_group(inode.gid)
    }

    /// Whether the kernel lets the caller keep set-ID bits of a file whose data it changes. A privilege counts in the first user namespace
    /// only, which is the one that maps all numbers to themselves.
    pub(crate) fn keeps_set_id(&self) -> bool {
        let read = |file| std::fs::read_to_string(format!("/proc/{}/{file}", self.pid));
        let is_first = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        read("status").is_ok_and(|status| capabilities(&status) & KEEPS_SET_ID != 0)
            && read("uid_map").is_ok_and(is_first)
    }

    /// A process that is not found, because it is gone or of a namespace that cannot be seen from here, is in no other group
    /// than the request's.
    fn is_in_group(&self, gid: u32) -> bool {
        if self.gid == gid {
            return true;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        status.is_ok_and(|status| groups(&status).any(|group| group == gid))
    }
}

/// The supplementary groups in a process's status.
fn groups(status: &str) -> impl Iterator<Item = u32> {
    let groups = field(status, "Groups:").split_ascii_whitespace();
    groups.filter_map(|group| group.parse().ok())
}

/// The capabilities in force in a process's status; none where it does not name them.
fn capabilities(status: &str) -> u64 {
    u64::from_str_radix(field(status, "CapEff:").trim(), 16).unwrap_or(0)
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_a_status() {
        let status = "Name:\tGroups: 9\nGid:\t1\t1\t1\t1\nGroups:\t4 24 4294967294 \nNStgid:\t7\n";
        assert_eq!(groups(status).collect::<Vec<_>>(), [4, 24, 4_294_967_294]);
        assert_eq!(groups("Groups:\t \n").count(), 0);
        assert_eq!(groups("").count(), 0);
    }

    #[test]
    fn capabilities_are_found_in_a_status() {
        let status = "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000010\nCapBnd:\t0\n";
        assert_eq!(capabilities(status), KEEPS_SET_ID);
        assert_eq!(capabilities("CapPrm:\tff\n"), 0);
        assert_eq!(capabilities("CapEff:\tnone\n"), 0);
    }
}
