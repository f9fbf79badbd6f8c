//! What holds for every cipher, and the vectors that take whole sectors.

use super::*;

/// Bytes from hexadecimal digits.
pub(super) fn hex(digits: &str) -> Vec<u8> {
    let nibbles: Vec<u32> = digits.chars().map(|c| c.to_digit(16).unwrap()).collect();
    assert!(nibbles.len().is_multiple_of(2));
    nibbles
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap())
        .collect()
}

const CIPHERS: [&str; 15] = [
    "aes-xts-plain64",
    "aes-xts-plain",
    "serpent-xts-plain64",
    "twofish-xts-plain64",
    "aes-cbc-essiv:sha256",
    "serpent-cbc-essiv:sha256",
    "twofish-cbc-essiv:sha256",
    "aes-cbc-plain64",
    "aes-cbc-plain",
    "serpent-cbc-plain64",
    "serpent-cbc-plain",
    "twofish-cbc-plain64",
    "xchacha12,aes-adiantum-plain64",
    "xchacha20,aes-adiantum-plain64",
    "xchacha20,aes-adiantum-plain",
];

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

/// IEEE 1619-2007, annex B: a sector of 512 bytes under AES-128 (vector 4) and AES-256 (vector 10).
#[test]
fn the_sectors_of_the_standard_for_xts_hold() {
    let plain: Vec<u8> = (0..512).map(|i| i as u8).collect();
    for (key, number, sealed) in [
        (
            "2718281828459045235360287471352631415926535897932384626433832795",
            0,
            include_str!("../../tests/vectors/xts-ieee-4.txt"),
        ),
        (
            "2718281828459045235360287471352662497757247093699959574966967627\
             3141592653589793238462643383279502884197169399375105820974944592",
            0xff,
            include_str!("../../tests/vectors/xts-ieee-10.txt"),
        ),
    ] {
        let cipher = SectorCipher::new("aes-xts-plain64", &hex(key), 512).unwrap();
        let mut data = plain.clone();
        cipher.encrypt(&mut data, number);
        assert_eq!(data, hex(sealed.trim()));
        cipher.decrypt(&mut data, number);
        assert_eq!(data, plain);
    }
}

#[test]
fn many_sectors_at_once_are_the_same_as_one_by_one() {
    for name in CIPHERS {
        for sector_size in [512, 1024, 2048, 4096] {
            for &key_len in SectorCipher::key_lens(name).unwrap() {
                let cipher = SectorCipher::new(name, &bytes(1, key_len), sector_size).unwrap();
                // More than any batch, and not a multiple of one; the slow ciphers share the constructions with AES.
                let count = if name.contains("aes") { 131 } else { 3 };
                let plain = bytes(2, sector_size * count);
                let first = u64::from(u32::MAX) - 700;
                let mut together = plain.clone();
                cipher.encrypt(&mut together, first);
                let mut single = plain.clone();
                for (at, sector) in single.chunks_mut(sector_size).enumerate() {
                    cipher.encrypt(sector, first + (at * sector_size / 512) as u64);
                }
                assert!(
                    together == single,
                    "{name}, {sector_size}, {key_len}: encrypting"
                );
                assert!(together != plain);
                cipher.decrypt(&mut together, first);
                assert!(
                    together == plain,
                    "{name}, {sector_size}, {key_len}: decrypting"
                );
                for (at, sector) in single.chunks_mut(sector_size).enumerate() {
                    cipher.decrypt(sector, first + (at * sector_size / 512) as u64);
                }
                assert!(
                    single == plain,
                    "{name}, {sector_size}, {key_len}: decrypting one by one"
                );
            }
        }
    }
}

#[test]
fn a_sector_depends_on_its_number() {
    for name in CIPHERS {
        let len = SectorCipher::key_lens(name).unwrap()[0];
        let cipher = SectorCipher::new(name, &bytes(3, len), 512).unwrap();
        let mut data = vec![0; 1024];
        cipher.encrypt(&mut data, 0);
        assert_ne!(data[..512], data[512..], "{name}");
    }
}

#[test]
fn a_sector_size_that_none_has_is_refused() {
    for size in [0, 1, 256, 513, 1000, 8192, usize::MAX] {
        assert!(matches!(
            SectorCipher::new("aes-xts-plain64", &[1; 64], size),
            Err(CipherError::SectorSize(_))
        ));
    }
}

#[test]
fn no_key_shows_in_what_is_printed() {
    let cipher = SectorCipher::new("aes-xts-plain64", &[0xab; 64], 512).unwrap();
    let shown = format!("{cipher:?}");
    assert!(!shown.contains("171") && !shown.contains("ab,"), "{shown}");
}
