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

const CIPHERS: [&str; 22] = [
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
    "camellia-xts-plain64",
    "camellia-cbc-essiv:sha256",
    "aria-xts-plain64",
    "cast6-xts-plain64",
    "cast6-cbc-essiv:sha256",
    "sm4-xts-plain64",
    "sm4-cbc-plain",
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

/// Sector 0 has an IV of zeros under CBC, so its first block is the block cipher's: vectors of RFC 3713 (Camellia), RFC 5794 (ARIA), RFC
/// 2612 (CAST-256) and of GB/T 32907-2016 (SM4).
#[test]
fn names_mean_the_block_ciphers_of_the_standards() {
    const MIXED: &str = "0123456789abcdeffedcba9876543210";
    const COUNTED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const DOUBLED: &str = "00112233445566778899aabbccddeeff";
    const ZEROS: &str = "00000000000000000000000000000000";
    const CAST6: &str = "2342bb9efa38542cbed0ac83940ac2988d7c47ce264908461cc1b5137ae6b604";
    let camellia_256 = format!("{MIXED}{DOUBLED}");
    for (name, key, plain, sealed) in [
        ("camellia", MIXED, MIXED, "67673138549669730857065648eabe43"),
        (
            "camellia",
            &camellia_256,
            MIXED,
            "9acc237dff16d76c20ef7c919e3a7509",
        ),
        (
            "aria",
            &COUNTED[..32],
            DOUBLED,
            "d718fbd6ab644c739da95f3be6451778",
        ),
        ("aria", COUNTED, DOUBLED, "f92bd7c79fb72e2f2b8f80c1972d24fc"),
        (
            "cast6",
            "2342bb9efa38542c0af75647f29f615d",
            ZEROS,
            "c842a08972b43d20836c91d1b7530f6b",
        ),
        ("cast6", CAST6, ZEROS, "4f6a2038286897b9c9870136553317fa"),
        ("sm4", MIXED, MIXED, "681edf34d206965e86b3e94f536e4246"),
    ] {
        let cipher = SectorCipher::new(&format!("{name}-cbc-plain64"), &hex(key), 512).unwrap();
        let mut sector = [0; 512];
        sector[..16].copy_from_slice(&hex(plain));
        cipher.encrypt(&mut sector, 0);
        assert_eq!(sector[..16], hex(sealed), "{name}");
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
