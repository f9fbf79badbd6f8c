//! The commands in groups, with a line on each: what `strongroom --help` and the manual page list.
//!
//! 1. Every command that is not hidden is in exactly one group.
//! 2. A line fits 80 columns, and the help down to the end of the first group fits 24 lines.

/// A group of commands.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    /// Name and summary of each.
    pub(crate) commands: &'static [(&'static str, &'static str)],
}

/// In the order in which a new user needs them.
pub(crate) const GROUPS: &[Group] = &[
    Group {
        title: "Rooms",
        commands: &[
            ("create", "Create a room in a new or empty directory"),
            ("mount", "Mount a room, or a shared file system"),
            ("umount", "Unmount a room, everything committed"),
            ("lock", "Unmount rooms and forget their keys"),
            ("info", "Show facts about a room"),
            ("sync", "Make what was written to a room durable now"),
        ],
    },
    Group {
        title: "Files",
        commands: &[
            ("ls", "List a directory of a room"),
            ("tree", "List a room as a tree"),
            ("cat", "Print files of a room"),
            ("cp", "Copy files into, out of, within and between rooms"),
            ("mv", "Move files likewise"),
            ("rm", "Remove files in a room"),
            ("mkdir", "Create directories in a room"),
            ("ln", "Link files in a room"),
            ("stat", "Show attributes of a file in a room"),
            ("df", "Show the space of a room and its disk"),
            ("du", "Show what files and directories in a room take"),
            ("import", "Import a container, a directory or a tar stream"),
            (
                "export",
                "Export a room, or a directory of one, as a tar stream",
            ),
        ],
    },
    Group {
        title: "Keys",
        commands: &[
            ("key", "List, add, remove and change the keys of a room"),
            ("header", "Back up and restore the header of a room"),
            ("rekey", "Encrypt a room again under a new master key"),
        ],
    },
    Group {
        title: "Care",
        commands: &[
            ("check", "Check a room, and repair it"),
            ("compact", "Return space of deleted data to the disk"),
            (
                "backup",
                "Copy a room to another directory, also while mounted",
            ),
            ("restore", "Restore a room from its backup"),
            (
                "snapshot",
                "Create, compare and restore snapshots of a room",
            ),
            (
                "undelete",
                "List what was removed, and bring it back from snapshots",
            ),
            ("send", "Write a snapshot of a room as a stream"),
            ("receive", "Make a replica from a stream, without the key"),
            ("replicate", "Bring a replica of a room up to date"),
        ],
    },
    Group {
        title: "Sharing",
        commands: &[
            ("disk", "Create, serve and manage network disks"),
            ("metadata", "Serve a room on network disks to its users"),
            ("user", "Manage the users of a shared room"),
            ("audit", "Create, verify and read a server's audit log"),
        ],
    },
    Group {
        title: "Volumes",
        commands: &[
            (
                "volume",
                "Work with encrypted disk images (LUKS and others)",
            ),
            ("serve", "Serve images, volumes and files of rooms over NBD"),
        ],
    },
    Group {
        title: "Benchmark",
        commands: &[("bench", "Measure what encryption costs here")],
    },
    Group {
        title: "This program",
        commands: &[
            ("completions", "Print completions for a shell"),
            ("man", "Print or write the manual pages"),
            ("help", "Show the help of a command"),
        ],
    },
];

/// The groups as help shows them.
pub(crate) fn help() -> String {
    let mut text = String::new();
    for group in GROUPS {
        text.push_str(&format!("{}:\n", group.title));
        for (name, summary) in group.commands {
            text.push_str(&format!("  {name:<12} {summary}\n"));
        }
        text.push('\n');
    }
    text
}

/// The groups as a section of the manual page.
pub(crate) fn roff() -> String {
    let mut text = String::from(".SH COMMANDS\n");
    let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    for group in GROUPS {
        text.push_str(&format!(".SS {}\n", escaped(group.title)));
        for (name, summary) in group.commands.iter().filter(|(name, _)| *name != "help") {
            text.push_str(&format!(
                ".TP\n\\fBstrongroom\\-{}\\fR(1)\n{}\n",
                escaped(name),
                escaped(summary)
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    #[test]
    fn every_command_is_in_one_group() {
        let mut listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|group| group.commands.iter().map(|(name, _)| *name))
            .collect();
        listed.sort_unstable();
        let mut command = commands::command();
        command.build();
        let mut there: Vec<&str> = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        there.sort_unstable();
        assert_eq!(listed, there);
    }

    #[test]
    fn the_first_group_fits_a_screen_and_every_line_a_terminal() {
        let help = commands::command().render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let end = help.find("\nFiles:").unwrap();
        assert!(help[..end].lines().count() <= 24, "{help}");
        // The order of the groups is that of the help.
        let places: Vec<_> = GROUPS
            .iter()
            .map(|group| help.find(&format!("{}:\n", group.title)).unwrap())
            .collect();
        assert!(places.is_sorted(), "{help}");
    }

    #[test]
    fn the_manual_has_the_same_groups() {
        let manual = include_str!("../../../docs/commands.md");
        for group in GROUPS {
            assert!(
                manual.contains(&format!("\n### {}\n", group.title)),
                "docs/commands.md lacks the group {}",
                group.title
            );
            for (name, _) in group.commands {
                assert!(
                    manual.contains(&format!("`{name}")),
                    "docs/commands.md lacks {name}"
                );
            }
        }
    }
}
