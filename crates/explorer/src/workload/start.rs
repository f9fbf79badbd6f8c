//! The rooms that workloads start from.
//!
//! Invariant: a prepared room is closed and durable, and the same for every workload that starts from it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use storage::{OpenMode, Storage};

use super::names::Names;
use super::session::Session;
use super::step::{NoStep, Step};

/// A prepared room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// Nothing but the root.
    Empty,
    /// Two directories with files of some units, unaligned ends, an extended attribute and a hard link.
    Tree,
    /// The same, with several short and thin segments.
    Thin,
    /// The same, in a room that grants writes.
    Granting,
    /// The same, with a unit of one of the smaller files damaged.
    Damaged,
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "empty",
            Self::Tree => "tree",
            Self::Thin => "thin",
            Self::Granting => "granting",
            Self::Damaged => "damaged",
        })
    }
}

impl FromStr for Start {
    type Err = NoStep;

    fn from_str(text: &str) -> Result<Self, NoStep> {
        let all = [
            Self::Empty,
            Self::Tree,
            Self::Thin,
            Self::Granting,
            Self::Damaged,
        ];
        all.into_iter()
            .find(|start| start.to_string() == text)
            .ok_or_else(|| NoStep::of(text))
    }
}

/// The steps that create it in an empty room, one a line. The last one: so that the room has a log.
const TREE: &str = "
    mkdir A
    mkdir B
    create foo
    append foo 50000
    create A/foo
    append A/foo 9000
    create A/bar
    append A/bar 100
    set-xattr A/bar user.kept 30
    link A/bar B/link
    symlink B/sym ../foo
    sync";

const THIN: &str = "
    reopen
    create thin
    append thin 40000
    reopen
    write thin 0 20000
    append A/bar 20000
    reopen
    truncate thin 5000
    write foo 16384 16384";

impl Start {
    /// The steps that make it out of an empty room.
    pub(crate) fn steps(self) -> Vec<Step> {
        let text = match self {
            Self::Empty => String::new(),
            Self::Tree | Self::Granting => TREE.to_owned(),
            // Each file's data before the next one's: else a commit writes them in any order, and the unit that is
            // spoiled is now of one file, now of another.
            Self::Damaged => TREE.replace("    create A/", "    sync\n    create A/"),
            Self::Thin => format!("{TREE}\n{THIN}"),
        };
        super::steps_of(&text, '\n')
    }

    /// The names in it.
    pub(crate) fn names(self) -> Names {
        let mut names = Names::default();
        self.steps().iter().for_each(|step| names.apply(step));
        names
    }

    /// Makes the room in an empty storage and closes it. Everything is durable afterwards.
    ///
    /// # Errors
    /// What the room says.
    pub fn prepare(self, storage: &Arc<dyn Storage>) -> room::Result<()> {
        let mut session = Session::create(storage.clone(), self == Self::Granting)?;
        // Far from the numbers of the workload's own steps, so that no bytes are alike.
        for (n, step) in self.steps().iter().enumerate() {
            session.step(1_000_000 + n, step)?;
        }
        session.step(0, &Step::Close)?;
        if self == Self::Damaged {
            damage(&**storage)?;
        }
        Ok(())
    }
}

/// Spoils one unit of a file.
fn damage(storage: &dyn Storage) -> room::Result<()> {
    let names = storage.list("segments")?;
    let Some(name) = names.iter().min() else {
        return Err(room::Error::NotFound);
    };
    let file = storage.open(&format!("segments/{name}"), OpenMode::ReadWrite)?;
    let mut byte = [0];
    // Behind the header of 4 KiB and the 13 blocks of `foo`, within the first block of what follows.
    let place = (1 + 13) * 4096 + 77;
    file.read_at(&mut byte, place)?;
    file.write_at(&[byte[0] ^ 0x20], place)?;
    Ok(file.sync()?)
}
