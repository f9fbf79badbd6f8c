//! Data that is wrong, and stores that go faster with some data than with other.

use super::*;
use crate::observe::loop_disk::LoopDisk;

#[test]
fn data_that_is_not_what_was_written_is_caught() {
    let directory = on_a_device();
    let file = written(&directory.path().join("file"), 64 * KIB);
    let mut kept = vec![0; 64 * KIB];
    file.read_exact_at(&mut kept, 0).expect("read");
    file.write_all_at(&[kept[700] ^ 1], 700).expect("spoiled");
    let mut wrong_bytes = 0;
    pieces(64 * KIB, 4096, |at, piece| {
        file.read_exact_at(piece, at).expect("read");
        let was = &kept[at as usize..at as usize + 4096];
        wrong_bytes += piece.iter().zip(was).filter(|(is, was)| is != was).count() as u64;
    });
    let claim = Claim {
        compared_bytes: 64 * KIB as u64,
        wrong_bytes,
        ..Claim::default()
    };
    fires(
        &judged(&Evidence::default(), &claim),
        IssueKind::WrongData,
        "1 B of 64 KiB",
    );
    let honest = Claim {
        wrong_bytes: 0,
        ..claim
    };
    no_issue(&judged(&Evidence::default(), &honest), IssueKind::WrongData);
}

/// Bytes the device wrote for each byte, of data and of zeros.
fn amplifications(disk: &LoopDisk) -> Zeros {
    const BYTES: usize = 8 * MIB;
    let observer = observer(&disk.path());
    let pass = |zeros: bool| {
        let file = written(&disk.path().join(format!("{zeros}")), 0);
        let mut random = fastrand::Rng::with_seed(5);
        let watch = observer.begin(&SystemClock, &[file.as_fd()]);
        pieces(BYTES, MIB, |at, piece| {
            piece.fill(0);
            if !zeros {
                random.fill(piece);
            }
            file.write_all_at(piece, at).expect("written");
        });
        file.sync_all().expect("synced");
        let evidence = watch.finish(&[file.as_fd()]);
        let device = evidence.top().expect("a device");
        Some(device.did.written_bytes as f64 / BYTES as f64)
    };
    Zeros {
        data_rate: 1.0,
        zeros_rate: 1.0,
        ratio_low: None,
        data_amplification: pass(false),
        zeros_amplification: pass(true),
    }
}

#[test]
fn a_store_that_compresses_is_caught_by_what_reaches_its_device() {
    let Some(disk) = LoopDisk::new(
        192,
        &["mkfs.btrfs", "-q", "-m", "single"],
        "compress-force=zstd",
    ) else {
        return;
    };
    let passes = amplifications(&disk);
    let found =
        data_matters(&passes, &Limits::default()).unwrap_or_else(|| panic!("no issue: {passes:?}"));
    assert_eq!(found.kind, IssueKind::DataMatters);
    assert!(found.said.starts_with("of zeros 0."), "{found:?}");
}

#[test]
fn a_store_that_does_not_compress_raises_no_issue() {
    let Some(disk) = LoopDisk::ext4(64) else {
        return;
    };
    let passes = amplifications(&disk);
    assert_eq!(
        data_matters(&passes, &Limits::default()),
        None,
        "{passes:?}"
    );
}

#[test]
fn zeros_that_go_faster_are_caught_where_no_device_can_be_asked() {
    let passes = |zeros_rate| Zeros {
        data_rate: 100.0,
        zeros_rate,
        ..Zeros::default()
    };
    assert_eq!(data_matters(&passes(104.0), &Limits::default()), None);
    let found = data_matters(&passes(117.0), &Limits::default()).expect("an issue");
    assert!(found.said.starts_with("zeros go 17 % faster"), "{found:?}");
    let scattered = Zeros {
        ratio_low: Some(0.7),
        ..passes(117.0)
    };
    assert_eq!(data_matters(&scattered, &Limits::default()), None);
}
