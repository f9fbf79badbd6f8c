//! Inode numbers of a mount that shows snapshots: which number means what.
//!
//! | bits from the highest | meaning |
//! |---|---|
//! | `00` | a file of the live tree |
//! | `010`, 23 bits, 38 bits | a file in a snapshot: the snapshot's number, the file's |
//! | `0110`, 60 bits | the directory of snapshots in a live directory, by the number of that |
//! | `0111`, 60 bits | what [`routes`](super::routes) knows: a file in a snapshot whose numbers do not fit, or a directory reached by another way |
//!
//! All are positive as signed numbers too, and none is the root's.
//!
//! A shared file system's own numbers have all 64 bits, as if drawn at random. Beside them are only numbers of the last kind: one that the table
//! has is of a snapshot, and any other one is live. That a live file has the number of one of a million routes is as likely as guessing 44 bits.

use model::InodeNo;

const VIRTUAL: u64 = 1 << 62;
const SPECIAL: u64 = 1 << 61;
const ROUTE: u64 = 1 << 60;
const INODE_BITS: u32 = 38;
const SNAPSHOT_BITS: u32 = 23;

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Live,
    /// The directory of snapshots in this one.
    List(InodeNo),
    /// A file in a snapshot, by the snapshot's number.
    Past(u64, InodeNo),
    /// To be looked up.
    Route,
}

/// Whether a number is of the live tree.
pub(super) fn is_live(no: InodeNo) -> bool {
    no.0 < VIRTUAL
}

pub(super) fn parse(no: InodeNo) -> Number {
    let low = |bits: u32| no.0 & ((1 << bits) - 1);
    if is_live(no) {
        Number::Live
    } else if no.0 & SPECIAL == 0 {
        let snapshot = (no.0 & !VIRTUAL) >> INODE_BITS;
        Number::Past(snapshot, InodeNo(low(INODE_BITS)))
    } else if no.0 & ROUTE == 0 {
        Number::List(InodeNo(low(60)))
    } else {
        Number::Route
    }
}

/// The directory of snapshots in `of`, a live directory.
pub(super) fn list(of: InodeNo) -> InodeNo {
    // Numbers rise from 1, one for each new file.
    assert!(of.0 < ROUTE, "a room has fewer than 2^60 files");
    InodeNo(VIRTUAL | SPECIAL | of.0)
}

/// A file in a snapshot; `None` where the numbers do not fit.
pub(super) fn past(snapshot: u64, no: InodeNo) -> Option<InodeNo> {
    let fits = snapshot < 1 << SNAPSHOT_BITS && no.0 < 1 << INODE_BITS;
    fits.then_some(InodeNo(VIRTUAL | snapshot << INODE_BITS | no.0))
}

/// Whether a number can be one of the table of routes.
pub(super) fn is_route(no: InodeNo) -> bool {
    no.0 >> 60 == 0b0111
}

/// A number for the table of routes, from any number.
pub(super) fn route(any: u64) -> InodeNo {
    InodeNo(VIRTUAL | SPECIAL | ROUTE | any & (ROUTE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_parsed_to_what_it_was_made_of() {
        for no in [1, 2, 1 << 37, (1 << 38) - 1] {
            let no = InodeNo(no);
            assert_eq!(parse(no), Number::Live);
            assert_eq!(parse(list(no)), Number::List(no));
            for snapshot in [0, 1, 1000, (1 << 23) - 1] {
                let past = past(snapshot, no).unwrap();
                assert_eq!(parse(past), Number::Past(snapshot, no));
                assert!(i64::try_from(past.0).is_ok());
            }
        }
        assert_eq!(parse(InodeNo(VIRTUAL - 1)), Number::Live);
        assert_eq!(
            parse(list(InodeNo(ROUTE - 1))),
            Number::List(InodeNo(ROUTE - 1))
        );
        for any in [0, 7, u64::MAX] {
            assert_eq!(parse(route(any)), Number::Route);
            assert!(is_route(route(any)) && !is_route(list(InodeNo(any & 7))));
            assert!(i64::try_from(route(any).0).is_ok());
        }
    }

    #[test]
    fn what_does_not_fit_has_no_number_of_this_kind() {
        assert_eq!(past(1 << 23, InodeNo(1)), None);
        assert_eq!(past(1, InodeNo(1 << 38)), None);
    }
}
