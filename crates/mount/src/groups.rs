//! Whether a caller is in a group: a request names one group of the process, and the rest is in `/proc`.

use model::Inode;

use crate::server::Caller;

const SET_GID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

impl Caller {
    /// Whether a change of the file's data by this caller, without the privilege to keep it, takes the set-group-ID bit from
    /// a file that its group may not execute. Where the group may, every such change does. The rule is Linux's
    /// (`setattr_should_drop_sgid`). The kernel applies it, but its requests do not carry the result.
    pub(crate) fn loses_setgid(&self, inode: &Inode) -> bool {
        inode.mode & (SET_GID | GROUP_EXECUTE) == SET_GID && !self.is_in_group(inode.gid)
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
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .into_iter()
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|group| group.parse().ok())
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
}
