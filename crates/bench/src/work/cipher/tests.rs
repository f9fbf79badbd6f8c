use super::*;
use crate::progress::Quiet;

fn tiny() -> Options {
    Options {
        sizes: vec![4096, 64 << 10],
        // Twofish, in a build for tests.
        run: 4096,
        seconds: 0.001,
        rounds: 1,
        cores: 2,
        slow: false,
    }
}

#[test]
fn every_cipher_has_a_row_for_each_size_and_number_of_cores_and_every_cell_a_number() {
    let out = run(&tiny(), &Quiet, &AtomicBool::new(false)).unwrap();
    let bulk = bulk().len();
    let (once, sectors) = (once(false).unwrap().len(), sectors::bulk().len());
    assert_eq!(out.rows.len(), (bulk * 2 + sectors) * 2 + once);
    assert!(out.rows.iter().all(|row| row.rounds[0].rate > 0.0));
    assert_eq!(out.tables.len(), 5);
    assert_eq!(out.tables[0].rows.len(), bulk);
    for suite in ["AES-256-GCM", "ChaCha20-Poly1305"] {
        for way in ["sealing", "opening"] {
            let name = format!("{suite}, {way}");
            assert!(
                out.tables[1].rows.iter().any(|row| row.name == name),
                "{name}"
            );
        }
    }
    assert_eq!(
        out.tables[2].columns.len() * out.tables[2].rows.len(),
        sectors
    );
    for cell in out
        .tables
        .iter()
        .flat_map(|t| &t.rows)
        .flat_map(|r| &r.cells)
    {
        assert_ne!(cell, NOTHING);
    }
    assert!(!out.interrupted);
}

#[test]
fn a_cipher_faster_than_copying_memory_is_invalid() {
    let fast = Bulk {
        name: "nothing at all".to_owned(),
        make: Box::new(|_, _| Box::new(|_| 1)),
    };
    let row = bulk_row(
        &fast,
        Pieces::of(4096, BATCH),
        1,
        &tiny(),
        Some(1e6),
        &Quiet,
    );
    assert!(row.verdict.invalid);
    assert_eq!(row.rounds[0].issues[0].kind, IssueKind::FasterThanPhysics);
}

#[test]
fn what_is_done_when_it_is_stopped_is_kept() {
    let out = run(&tiny(), &Quiet, &AtomicBool::new(true)).unwrap();
    assert!(out.interrupted && out.rows.is_empty());
    assert!(out.tables[0].rows.iter().all(|row| row.cells[0] == NOTHING));
}

#[test]
fn a_row_of_sectors_names_its_cipher_its_key_and_its_sectors() {
    let names: Vec<String> = sectors::bulk().into_iter().map(|of| of.name).collect();
    for wanted in [
        "aes-xts-plain64, 256 bits, sectors of 512, encrypting",
        "aes-xts-plain64, 512 bits, sectors of 4096, decrypting",
        "aes-cbc-essiv:sha256, 128 bits, sectors of 512, decrypting",
        "xchacha12,aes-adiantum-plain64, 256 bits, sectors of 4096, encrypting",
    ] {
        assert!(
            names.iter().any(|name| name == wanted),
            "{wanted}: {names:?}"
        );
    }
}
