use std::path::PathBuf;

use super::*;
use crate::progress::Quiet;

fn tiny() -> Options {
    Options {
        files: 5,
        ..Options::default()
    }
}

#[test]
fn every_operation_is_done_on_every_file_of_a_directory_and_a_room_and_nothing_is_left() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let subjects: Vec<Maker<'_>> = vec![
        Box::new(|| Ok(Box::new(Directory::new(dir.path())?))),
        Box::new(|| Ok(Box::new(Library::new(dir.path())?))),
    ];
    let out = run(&tiny(), subjects, None, &Quiet, &AtomicBool::new(false)).unwrap();
    assert_eq!(out.rows.len(), 2 * Operation::ALL.len());
    for row in &out.rows {
        assert_eq!(row.rounds[0].operations, 5, "{row:?}");
        let latency = row.latency.as_ref().unwrap();
        assert!(latency.count == 5 && latency.max_ns > 100, "{latency:?}");
        let issues = &row.rounds[0].issues;
        assert!(
            issues.iter().all(|d| d.kind != IssueKind::WrongData),
            "{issues:?}"
        );
    }
    let labels: Vec<_> = out.stores.iter().map(|s| s.label.as_str()).collect();
    assert_eq!(labels, ["directory", "room"]);
    assert_eq!(
        std::fs::read_dir(dir.path().join("plain")).unwrap().count(),
        0
    );
}

/// A store that loses what is written to it, or shows another file's.
struct Liar(PathBuf);

impl Files for Liar {
    fn create(&self, _: &str, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: &str, buf: &mut [u8]) -> Result<usize> {
        buf.fill(7);
        Ok(buf.len())
    }
    fn write(&self, _: &str, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn open(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn chmod(&self, _: &str, _: u32) -> Result<()> {
        Ok(())
    }
    fn unlink(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Subject for Liar {
    fn facts(&self) -> StoreFacts {
        StoreFacts {
            label: "liar".to_owned(),
            ..StoreFacts::default()
        }
    }
    fn files(&self) -> &dyn Files {
        self
    }
    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }
    fn backing(&self) -> &Path {
        &self.0
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn what_is_read_is_compared_and_a_wrong_byte_makes_the_row_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let liar: Vec<Maker<'_>> = vec![Box::new(|| Ok(Box::new(Liar(dir.path().to_owned()))))];
    let spans = Spans::with_clock(|| 0);
    let stop = AtomicBool::new(false);
    let out = run(&tiny(), liar, Some(&spans), &Quiet, &stop).unwrap();
    let read = &out.rows[1];
    assert!(read.verdict.invalid && read.summary.is_none());
    for (row, parts) in out.rows.iter().zip(&out.parts) {
        assert_eq!(parts.invalid, row.verdict.invalid, "{parts:?}");
    }
    let wrong = |row: &Row| {
        row.rounds[0]
            .issues
            .iter()
            .any(|d| d.kind == IssueKind::WrongData)
    };
    assert!(
        wrong(read)
            && !out
                .rows
                .iter()
                .filter(|row| row.work != read.work)
                .any(wrong)
    );
    assert!(
        out.notes
            .iter()
            .any(|note| note.contains("liar, read: INVALID"))
    );
}

#[test]
fn reads_whose_files_stay_in_memory_are_not_cold() {
    // The pages of a file system in memory cannot be dropped.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let plain: Vec<Maker<'_>> = vec![Box::new(|| Ok(Box::new(Directory::new(dir.path())?)))];
    let out = run(&tiny(), plain, None, &Quiet, &AtomicBool::new(false)).unwrap();
    let read = &out.rows[1];
    assert!(read.verdict.invalid, "{read:?}");
    let hit = |row: &Row| {
        row.rounds[0]
            .issues
            .iter()
            .any(|d| d.kind == IssueKind::CacheHit)
    };
    // Writing has nothing to do with it.
    assert!(hit(read) && !hit(&out.rows[2]));
}

#[test]
fn files_that_are_no_whole_blocks_are_refused_before_anything_is_made() {
    let options = Options {
        size: 1000,
        ..tiny()
    };
    let refused = run(&options, Vec::new(), None, &Quiet, &AtomicBool::new(false));
    assert!(matches!(refused, Err(Error::Usage(_))));
}
