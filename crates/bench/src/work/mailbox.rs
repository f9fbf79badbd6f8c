//! A mail server's work: each message durable under its name before the next is taken.

use super::sync::{durable_row, measured_changes, one_by_one};
use super::{Bed, Context, Measured, RowName, Work, failed};
use crate::Result;
use crate::data::{BLOCK, Content, Data};
use crate::model::{Issue, IssueKind};
use crate::store::{Names, Powers};
use crate::validity::{self, Claim};

/// Most of them in a round.
const MOST: u32 = 4096;

/// Messages of 4 KiB delivered as Maildir has it: created in `tmp`, written and synced there, renamed into `new`, and that
/// directory synced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mailbox;

impl Mailbox {
    /// Its row's name.
    pub const NAME: &'static str = "mailbox delivery, 4 KiB";
}

impl Work for Mailbox {
    fn rows(&self) -> Vec<RowName> {
        durable_row(Self::NAME)
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        powers.single.then_some("it has no names")
    }

    fn round(&self, bed: &mut Bed, context: &Context<'_>) -> Result<Vec<Measured>> {
        let number = bed.fresh();
        let messages = Messages {
            root: format!("mailbox-{number}"),
            version: number,
            data: Data::new(context.seed, 4, Content::Unique),
        };
        let names = bed.store().names()?;
        let names = &*names;
        messages
            .make_directories(names)
            .map_err(failed(bed, "creating a mailbox"))?;
        let done = one_by_one(
            bed,
            context,
            MOST,
            BLOCK,
            |message| messages.content(message),
            |message, content| {
                let delivered = messages.deliver(names, message, content);
                delivered.map_err(failed(bed, "delivering a message"))
            },
        )?;
        let not_durable = messages.directory_not_synced(names, bed, context)?;
        let wrong_bytes = messages
            .remove(names, done.0.operations as u32)
            .map_err(failed(bed, "reading and removing messages"))?;
        bed.store().settle()?;
        let mut measured = measured_changes(bed, context, done, wrong_bytes);
        measured[0].round.issues.extend(not_durable);
        Ok(measured)
    }
}

/// The messages of a round.
struct Messages {
    root: String,
    version: u32,
    data: Data,
}

impl Messages {
    fn path(&self, directory: &str, message: u32) -> String {
        format!("{}/{directory}/{message}", self.root)
    }

    fn content(&self, message: u32) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let at = u64::from(message) * BLOCK as u64;
        self.data.fill(at, &mut block, |_| self.version);
        block
    }

    fn make_directories(&self, names: &dyn Names) -> std::io::Result<()> {
        names.make_dir(&self.root)?;
        names.make_dir(&format!("{}/tmp", self.root))?;
        names.make_dir(&format!("{}/new", self.root))
    }

    fn deliver(&self, names: &dyn Names, message: u32, content: &[u8]) -> std::io::Result<()> {
        let written = self.path("tmp", message);
        names.create(&written, content, true)?;
        names.rename(&written, &self.path("new", message))?;
        names.sync_dir(&format!("{}/new", self.root))
    }

    /// Whether the sync of a directory is none. It is looked at by itself: the sync of each message's content hides it in the time.
    fn directory_not_synced(
        &self,
        names: &dyn Names,
        bed: &Bed,
        context: &Context<'_>,
    ) -> Result<Option<Issue>> {
        let (first, renamed) = (self.path("new", 0), self.path("new", MOST));
        let rename = |from: &str, to: &str| {
            names
                .rename(from, to)
                .map_err(failed(bed, "renaming a message"))
        };
        let ((), evidence) = bed.watch(context.clock, &[], |_| {
            rename(&first, &renamed)?;
            names
                .sync_dir(&format!("{}/new", self.root))
                .map_err(failed(bed, "syncing a directory"))
        })?;
        rename(&renamed, &first)?;
        let claim = Claim {
            durable: true,
            changed_names: true,
            ..Claim::default()
        };
        let issues = validity::of_round(&evidence, &claim, &bed.ceilings, &context.limits);
        Ok(issues
            .into_iter()
            .find(|issue| issue.kind == IssueKind::NotDurable))
    }

    /// Removes the first `count` messages and the directories; returns how many bytes were not as they were written.
    fn remove(&self, names: &dyn Names, count: u32) -> std::io::Result<u64> {
        let mut found = [0; BLOCK];
        let mut wrong = 0;
        for message in 0..count {
            let path = self.path("new", message);
            let length = names.read(&path, &mut found)?;
            if found[..length] != self.content(message)[..] {
                wrong += BLOCK as u64;
            }
            names.unlink(&path)?;
        }
        names.remove_dir(&format!("{}/tmp", self.root))?;
        names.remove_dir(&format!("{}/new", self.root))?;
        names.remove_dir(&self.root)?;
        Ok(wrong)
    }
}
