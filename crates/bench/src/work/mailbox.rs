//! A mail server's work: each message durable under its name before the next is taken.

use super::{Bed, Context, Measured, RowName, Timed, Work, failed};
use crate::Result;
use crate::data::{BLOCK, Content, Data};
use crate::engine::Recorder;
use crate::model::Unit;
use crate::store::{Names, Powers};
use crate::validity::{Claim, Direction};

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
        vec![RowName {
            work: Self::NAME.into(),
            unit: Unit::OperationsPerSecond,
            writes: true,
        }]
    }

    fn impossible(&self, powers: Powers) -> Option<&'static str> {
        (!powers.names || !powers.write).then_some("it has no names")
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
        let (recorder, evidence) = bed.watch(context.clock, &[], |began| {
            let mut recorder = Recorder::new(began, context.limit_ns());
            let mut block = [0; BLOCK];
            for message in 0..MOST {
                messages.content(message, &mut block);
                let before = context.clock.raw_ns();
                if before.wrapping_sub(began) >= context.limit_ns() || context.go_on().is_err() {
                    break;
                }
                messages
                    .deliver(names, message, &block)
                    .map_err(failed(bed, "delivering a message"))?;
                recorder.note(before, context.clock.raw_ns(), BLOCK as u64);
            }
            Ok(recorder)
        })?;
        context.go_on()?;
        let done = recorder.operations;
        let wrong_bytes = messages
            .remove(names, done as u32)
            .map_err(failed(bed, "reading and removing messages"))?;
        bed.store().settle()?;
        let claim = Claim {
            direction: Direction::Write,
            durable: true,
            // At least: a store may make the rename durable with what it syncs for another reason.
            syncs: done,
            compared_bytes: done * BLOCK as u64,
            wrong_bytes,
            ..Claim::default()
        };
        let timed = Timed {
            recorder,
            evidence,
            claim,
            cut: true,
        };
        let ceilings = bed.ceilings;
        Ok(vec![timed.measured(
            Unit::OperationsPerSecond,
            &ceilings,
            &context.limits,
        )])
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

    fn content(&self, message: u32, block: &mut [u8]) {
        let at = u64::from(message) * BLOCK as u64;
        self.data.fill(at, block, |_| self.version);
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

    /// Removes the first `count` messages and the directories; returns how many bytes were not as they were written.
    fn remove(&self, names: &dyn Names, count: u32) -> std::io::Result<u64> {
        let (mut found, mut wanted) = ([0; BLOCK], [0; BLOCK]);
        let mut wrong = 0;
        for message in 0..count {
            let path = self.path("new", message);
            self.content(message, &mut wanted);
            let length = names.read(&path, &mut found)?;
            if found[..length] != wanted[..] {
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
