//! Ciphers of sectors, as volumes have them: one entry for each cipher, length of key, size of sector, and way.
//!
//! 1. What runs is `volume`'s own [`SectorCipher`], by the names of dm-crypt.
//! 2. A piece is a run of sectors with numbers of their own, as one read or write of a volume is; it stays in a core's cache.

use std::hint::black_box;

use volume::sector::SectorCipher;

use super::subjects::{Batch, Bulk, timed};
use crate::model::{PublishedTable, TableRow};

/// Sizes of a sector: the smallest, of LUKS1 and Android; the largest, of LUKS2 where the image allows.
const SIZES: [usize; 2] = [512, 4096];

/// A cipher with a length of key.
struct Cipher {
    name: &'static str,
    key_bits: usize,
}

const CIPHERS: [Cipher; 8] = [
    of("aes-xts-plain64", 512),
    of("aes-xts-plain64", 256),
    // The phone of the published table.
    of("aes-cbc-essiv:sha256", 128),
    of("aes-cbc-essiv:sha256", 256),
    of("serpent-xts-plain64", 512),
    of("twofish-xts-plain64", 512),
    of("xchacha12,aes-adiantum-plain64", 256),
    of("xchacha20,aes-adiantum-plain64", 256),
];

const fn of(name: &'static str, key_bits: usize) -> Cipher {
    Cipher { name, key_bits }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Encrypting,
    Decrypting,
}

const WAYS: [Way; 2] = [Way::Encrypting, Way::Decrypting];

impl Cipher {
    fn title(&self) -> String {
        format!("{}, {} bits", self.name, self.key_bits)
    }

    fn row(&self, sector: usize, way: Way) -> String {
        format!("{}, {}", self.title(), column(sector, way))
    }

    fn batch(&self, sector: usize, way: Way, size: usize, pieces: usize) -> Batch {
        // Secret it need not be; the halves of a key for XTS must differ.
        let mut key = vec![0; self.key_bits / 8];
        fastrand::fill(&mut key);
        let cipher = SectorCipher::new(self.name, &key, sector)
            .expect("the ciphers, keys and sectors here are all of those that are known");
        let mut piece = vec![0x5a; size];
        let mut first = 0;
        timed(pieces, move || {
            match way {
                Way::Encrypting => cipher.encrypt(black_box(&mut piece), first),
                Way::Decrypting => cipher.decrypt(black_box(&mut piece), first),
            }
            first += (size / volume::sector::IV_UNIT) as u64;
        })
    }
}

fn column(sector: usize, way: Way) -> String {
    let way = match way {
        Way::Encrypting => "encrypting",
        Way::Decrypting => "decrypting",
    };
    format!("sectors of {sector}, {way}")
}

/// Everything with a rate.
pub(super) fn bulk() -> Vec<Bulk> {
    let mut all = Vec::new();
    for cipher in &CIPHERS {
        for sector in SIZES {
            for way in WAYS {
                all.push(Bulk {
                    name: cipher.row(sector, way),
                    make: Box::new(move |size, pieces| cipher.batch(sector, way, size, pieces)),
                });
            }
        }
    }
    all
}

/// The table: `cell` gives what was measured of a row of this name.
pub(super) fn table(title: String, cell: &dyn Fn(&str) -> String) -> PublishedTable {
    let columns = || {
        SIZES
            .into_iter()
            .flat_map(|size| WAYS.map(|way| (size, way)))
    };
    PublishedTable {
        title,
        source: "measured here, none published".to_owned(),
        columns: columns().map(|(size, way)| column(size, way)).collect(),
        rows: CIPHERS
            .iter()
            .map(|cipher| TableRow {
                name: cipher.title(),
                cells: columns()
                    .map(|(size, way)| cell(&cipher.row(size, way)))
                    .collect(),
            })
            .collect(),
    }
}
