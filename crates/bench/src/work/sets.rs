//! Which works a command does.

use super::{Calls, Direction, Mailbox, Metadata, Order, SourceTree, Syncs, Transactions, Work};
use crate::data::Content;

/// Sizes of a call, bytes.
const BLOCKS: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Calls in flight where there are many.
const DEPTH: u32 = 16;

use Direction::{Read, Write};
use Order::{Random, Sequential};

/// What says most about a store in a few minutes.
pub fn usual() -> Vec<Box<dyn Work>> {
    let large = |direction| Calls::new(direction, Sequential, 1 << 20);
    let small = |direction| Calls::new(direction, Random, 4 << 10);
    let mut works: Vec<Box<dyn Work>> = vec![
        Box::new(large(Read)),
        Box::new(large(Write)),
        Box::new(zeros()),
        Box::new(small(Read)),
        Box::new(small(Write)),
        Box::new(large(Read).direct(1)),
        Box::new(large(Write).direct(1)),
        Box::new(small(Read).direct(DEPTH)),
        Box::new(small(Write).direct(DEPTH)),
    ];
    works.extend(durable());
    works.push(Box::new(Metadata));
    works
}

/// Every size, order and depth.
pub fn full() -> Vec<Box<dyn Work>> {
    let mut works: Vec<Box<dyn Work>> = Vec::new();
    for order in [Sequential, Random] {
        for direction in [Read, Write] {
            for block in BLOCKS {
                let calls = Calls::new(direction, order, block);
                works.push(Box::new(calls));
                works.push(Box::new(calls.direct(1)));
                works.push(Box::new(calls.direct(DEPTH)));
            }
        }
    }
    works.push(Box::new(zeros()));
    works.push(Box::new(Syncs::Overwrite));
    works.extend(durable());
    works.push(Box::new(Metadata));
    works
}

/// The rows of the phone table, in its order: reads of 256 KiB as published, random writes of 4 KiB. Then random reads of
/// 4 KiB, which say more of today's programs.
pub fn cost() -> [Calls; 5] {
    [
        Calls::new(Read, Random, 256 << 10),
        Calls::new(Write, Random, 4 << 10),
        Calls::new(Read, Sequential, 256 << 10),
        Calls::new(Write, Sequential, 256 << 10),
        Calls::new(Read, Random, 4 << 10),
    ]
}

/// What programs wait for that make each small change durable: logs, mail servers, databases.
pub fn durable() -> Vec<Box<dyn Work>> {
    vec![
        Box::new(Syncs::Append),
        Box::new(Mailbox),
        Box::new(Transactions::RollbackJournal),
        Box::new(Transactions::WriteAheadLog),
    ]
}

/// In what encrypted file systems are compared with each other: a large file in calls of 128 KiB, a source tree, and small
/// changes that are durable.
pub fn tools() -> Vec<Box<dyn Work>> {
    let mut works: Vec<Box<dyn Work>> = vec![
        Box::new(Calls::new(Write, Sequential, 128 << 10)),
        Box::new(Calls::new(Read, Sequential, 128 << 10)),
        Box::new(SourceTree),
    ];
    works.extend(durable());
    works
}

/// The pass of zeros, which shows whether content matters to a store.
fn zeros() -> Calls {
    Calls {
        content: Content::Zeros,
        ..Calls::new(Write, Sequential, 1 << 20)
    }
}

/// Those works of which a row has all the words of one of `selections` in its name; all where nothing is selected.
pub fn select(works: Vec<Box<dyn Work>>, selections: &[String]) -> Vec<Box<dyn Work>> {
    works
        .into_iter()
        .filter(|work| {
            work.rows()
                .iter()
                .any(|row| is_selected(&row.work, selections))
        })
        .collect()
}

/// Whether a row's name has all the words of one of `selections`.
pub fn is_selected(name: &str, selections: &[String]) -> bool {
    let words = |text: &str| -> Vec<String> {
        let separators = |letter: char| letter.is_whitespace() || letter == ',';
        let parts = text.split(separators).filter(|word| !word.is_empty());
        parts.map(str::to_lowercase).collect()
    };
    let mut has = words(name);
    // "4 KiB" is also found as "4KiB", "depth 1" as "depth1".
    let pairs: Vec<String> = has.windows(2).map(<[String]>::concat).collect();
    has.extend(pairs);
    selections.is_empty()
        || selections
            .iter()
            .any(|selection| words(selection).iter().all(|word| has.contains(word)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn names(works: &[Box<dyn Work>]) -> Vec<String> {
        let rows = works.iter().flat_map(|work| work.rows());
        rows.map(|row| row.work).collect()
    }

    #[test]
    fn the_rows_of_the_tools_table_are_measured() {
        let measured: Vec<String> = tools()
            .iter()
            .flat_map(|work| work.rows())
            .map(|row| row.work)
            .collect();
        assert!(measured.starts_with(&crate::published::TOOL_WORKS.map(String::from)));
    }

    #[test]
    fn no_two_rows_have_the_same_name() {
        for set in [usual(), full()] {
            let names = names(&set);
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        }
    }

    #[test]
    fn all_that_is_usual_is_in_the_full_set() {
        let full = names(&full());
        assert!(names(&usual()).iter().all(|name| full.contains(name)));
    }

    #[test]
    fn words_select_rows() {
        let only = |words: &str| names(&select(usual(), &[words.to_owned()]));
        assert_eq!(
            only("random read cold"),
            ["random read, 4 KiB, depth 1, cold"]
        );
        assert_eq!(only("1MiB read direct").len(), 1);
        assert_eq!(only("random direct read depth16").len(), 1);
        assert!(only("random direct read depth1").is_empty());
        assert!(only("no such row").is_empty());
        assert_eq!(names(&select(usual(), &[])), names(&usual()));
    }
}
