//! A small CoreStorage volume made here: two pieces out of order on the disk, two users, old versions of its metadata.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use device::MemoryDevice;

use super::*;
use crate::sector::encrypt_unit;

const BLOCK: usize = 4096;
const FAMILY: &str = "1F01CA34-5F6C-4123-AC0C-B0A256889DB2";
const VOLUME_KEY: [u8; 16] = [0x77; 16];
/// Blocks of the logical volume: 3 at block 40, then 5 at block 32.
const PIECES: [(u64, u32, u64); 2] = [(0, 3, 40), (3, 5, 32)];
const BYTES: usize = 8 * BLOCK;

fn sum(block: &mut [u8]) {
    let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    block[4..8].fill(0xff);
    let sum = !crc.checksum(&block[8..]);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn wrap(with: &[u8; 16], key: &[u8; 16]) -> Vec<u8> {
    let mut out = [0; 24];
    AesKek::new(&AES_128, with)
        .unwrap()
        .wrap(key, &mut out)
        .unwrap()
        .to_vec()
}

fn user_of(passphrase: &str, salt: u8, kek: &[u8; 16]) -> String {
    let mut derived = [0; 16];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        NonZeroU32::new(10).unwrap(),
        &[salt; 16],
        passphrase.as_bytes(),
        &mut derived,
    );
    let mut value = vec![0; 284];
    put(&mut value, 8, &[salt; 16]);
    put(&mut value, 32, &wrap(&derived, kek));
    put(&mut value, 168, &10_u32.to_le_bytes());
    STANDARD.encode(value)
}

fn context(conversion: &str) -> String {
    let kek = [0x33; 16];
    let mut key = vec![0; 256];
    put(&mut key, 8, &wrap(&kek, &VOLUME_KEY));
    format!(
        "<dict ID=\"0\"><key>CryptoUsers</key><array ID=\"2\">\
         <dict><key>PassphraseWrappedKEKStruct</key><data ID=\"4\">{}</data></dict>\
         <dict><key>PassphraseWrappedKEKStruct</key><data ID=\"5\">{}</data></dict></array>\
         <key>WrappedVolumeKeys</key><array><dict><key>BlockAlgorithm</key><string>None</string>\
         <key>KEKWrappedVolumeKeyStruct</key><data></data></dict><dict><key>BlockAlgorithm</key>\
         <string ID=\"7\">AES-XTS</string><key>KEKWrappedVolumeKeyStruct</key><data>{}</data></dict></array>\
         <key>ConversionStatus</key><string>{conversion}</string></dict>",
        user_of("hers", 1, &kek),
        user_of("his", 2, &kek),
        STANDARD.encode(key),
    )
}

fn block(kind: u16, transaction: u64, object: u64) -> Vec<u8> {
    let mut block = vec![0; 8192];
    put(&mut block, 10, &kind.to_le_bytes());
    put(&mut block, 16, &transaction.to_le_bytes());
    put(&mut block, 24, &object.to_le_bytes());
    put(&mut block, 48, &8192_u32.to_le_bytes());
    block
}

fn list(kind: u16, transaction: u64, at: usize, text: &str) -> Vec<u8> {
    let mut block = block(kind, transaction, u64::from(kind));
    put(&mut block, 64 + at, &512_u32.to_le_bytes());
    put(&mut block, 64 + at + 4, &(text.len() as u32).to_le_bytes());
    put(&mut block, 512, text.as_bytes());
    block
}

fn volume_list(bytes: usize) -> String {
    format!(
        "<dict><key>com.apple.corestorage.lv.familyUUID</key><string ID=\"2\">{FAMILY}</string>\
         <key>com.apple.corestorage.lv.name</key><string>Small</string>\
         <key>com.apple.corestorage.lv.size</key><integer size=\"64\">{bytes:#x}</integer></dict>"
    )
}

fn plain() -> Vec<u8> {
    let mut plain: Vec<u8> = (0..BYTES).map(|i| (i / 251) as u8).collect();
    put(&mut plain, 1024, b"H+");
    plain
}

fn entries(pieces: &[(u64, u32, u64)]) -> Vec<u8> {
    let mut entries = block(0x305, 4, 9);
    put(&mut entries, 64, &(pieces.len() as u32).to_le_bytes());
    for (i, (logical, blocks, physical)) in pieces.iter().enumerate() {
        let at = 72 + 40 * i;
        put(&mut entries, at + 8, &logical.to_le_bytes());
        put(&mut entries, at + 16, &blocks.to_le_bytes());
        put(&mut entries, at + 32, &physical.to_le_bytes());
    }
    entries
}

/// The disk: header, metadata in the clear at block 1 and 5, encrypted metadata at block 8, contents from block 32 on.
fn image(conversion: &str, pieces: &[(u64, u32, u64)]) -> Vec<u8> {
    let mut image = vec![0; 48 * BLOCK];
    let header_key = {
        let header = &mut image[..512];
        put(header, 8, &[1, 0, 0x10, 0]);
        put(header, 88, b"CS");
        put(header, 96, &(BLOCK as u32).to_le_bytes());
        put(header, 104, &1_u64.to_le_bytes());
        put(header, 112, &5_u64.to_le_bytes());
        put(header, 172, &2_u32.to_le_bytes());
        put(header, 176, &[0x11; 16]);
        put(header, 304, &[0x22; 16]);
        sum(header);
        let mut key = [0x11; 32];
        key[16..].fill(0x22);
        key
    };
    for at in [1, 5] {
        let mut clear = vec![0; 3 * BLOCK];
        put(&mut clear, 10, &0x11_u16.to_le_bytes());
        put(&mut clear, 48, &(BLOCK as u32).to_le_bytes());
        put(&mut clear, 64, &(3 * BLOCK as u32).to_le_bytes());
        put(&mut clear, 64 + 156, &(2 * BLOCK as u32).to_le_bytes());
        put(&mut clear, 2 * BLOCK + 8, &16_u64.to_le_bytes());
        put(&mut clear, 2 * BLOCK + 32, &(8_u64 | 3 << 48).to_le_bytes());
        sum(&mut clear[..BLOCK]);
        put(&mut image, at * BLOCK, &clear);
    }
    let entries = entries(pieces);
    let newer = list(0x1a, 7, 64, &volume_list(BYTES));
    let older = list(0x1a, 6, 64, &volume_list(512));
    let blocks = [
        newer,
        list(0x19, 5, 48, &context(conversion)),
        entries,
        older,
    ];
    for (number, mut unit) in blocks.into_iter().enumerate() {
        sum(&mut unit);
        encrypt_unit(&header_key, &mut unit, number as u64);
        put(&mut image, 8 * BLOCK + number * 8192, &unit);
    }
    let family = uuid::Uuid::try_parse(FAMILY).unwrap().into_bytes();
    let mut key = VOLUME_KEY.to_vec();
    key.extend_from_slice(&tweak_key(&Zeroizing::new(VOLUME_KEY), &family)[..]);
    let mut sealed = plain();
    SectorCipher::new("aes-xts-plain64", &key, 512)
        .unwrap()
        .encrypt(&mut sealed, 0);
    for (logical, blocks, physical) in PIECES {
        let from = logical as usize * BLOCK;
        let piece = &sealed[from..from + blocks as usize * BLOCK];
        put(&mut image, physical as usize * BLOCK, piece);
    }
    image
}

fn try_open(image: Vec<u8>, credential: &Credential) -> Result<Arc<dyn Device>, VolumeError> {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    open(
        Arc::new(MemoryDevice::read_only(image)),
        credential,
        options,
    )
    .map(|(device, _)| device)
}

fn passphrase(text: &str) -> Credential {
    Credential::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))
}

#[test]
fn every_user_and_the_key_itself_open_a_volume_in_pieces() {
    let key = Credential::MasterKey(Zeroizing::new(VOLUME_KEY.to_vec()));
    for credential in [passphrase("hers"), passphrase("his"), key] {
        let device = try_open(image("Complete", &PIECES), &credential).unwrap();
        let mut all = vec![0; BYTES];
        device.read_at(&mut all, 0).unwrap();
        assert!(all == plain());
        // Across the border of the pieces.
        let mut part = [0; 1000];
        device.read_at(&mut part, 3 * BLOCK as u64 - 500).unwrap();
        assert!(part[..] == plain()[3 * BLOCK - 500..3 * BLOCK + 500]);
        assert!(device.is_read_only());
    }
    let summary = summary(&MemoryDevice::read_only(image("Complete", &PIECES))).unwrap();
    assert_eq!((summary.name.as_deref(), summary.users), (Some("Small"), 2));
    assert_eq!((summary.bytes, summary.segments), (BYTES as u64, 2));
}

#[test]
fn what_is_not_its_key_is_refused() {
    let error = try_open(image("Complete", &PIECES), &passphrase("theirs")).unwrap_err();
    assert!(matches!(error, VolumeError::WrongCredential(_)), "{error}");
    let short = Credential::MasterKey(Zeroizing::new(vec![1; 20]));
    assert!(try_open(image("Complete", &PIECES), &short).is_err());
}

#[test]
fn a_volume_that_is_partly_encrypted_or_to_be_written_is_refused() {
    let error = try_open(image("Converting", &PIECES), &passphrase("his")).unwrap_err();
    assert!(error.to_string().contains("Converting"), "{error}");
    let device = Arc::new(MemoryDevice::read_only(image("Complete", &PIECES)));
    let error = open(device, &passphrase("his"), OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[test]
fn the_second_copy_of_the_metadata_serves_when_the_first_is_damaged() {
    let mut image = image("Complete", &PIECES);
    image[BLOCK + 100] ^= 1;
    try_open(image.clone(), &passphrase("his")).unwrap();
    image[5 * BLOCK + 100] ^= 1;
    let error = try_open(image, &passphrase("his")).unwrap_err();
    assert!(matches!(error, VolumeError::Damaged(_)), "{error}");
}

#[test]
fn pieces_that_do_not_make_the_volume_are_refused() {
    for pieces in [
        &[][..],
        &[(0, 3, 40)],
        &[(0, 3, 40), (4, 5, 32)],
        &[(0, 3, 40), (2, 6, 32)],
        &[(0, 3, 40), (3, 5, 44)],
        &[(0, 8, u64::MAX >> 17)],
        &[(0, 8, 32 | 1 << 48)],
        &[(u64::MAX, 8, 32)],
    ] {
        let error = try_open(image("Complete", pieces), &passphrase("his"));
        assert!(error.is_err(), "{pieces:?} was taken");
    }
}

#[test]
fn a_flipped_byte_anywhere_in_the_metadata_never_gives_other_contents() {
    let good = image("Complete", &PIECES);
    let mut opened = 0;
    for at in (0..512)
        .chain((BLOCK..8 * BLOCK).step_by(509))
        .chain((8 * BLOCK..16 * BLOCK).step_by(127))
    {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        if let Ok(device) = try_open(bad, &passphrase("his")) {
            let mut all = vec![0; BYTES.min(device.len() as usize)];
            device.read_at(&mut all, 0).unwrap();
            // An older description of the volume may replace a damaged one, as a shorter volume.
            assert!(all[..] == plain()[..all.len()], "byte {at}");
            opened += 1;
        }
    }
    assert!(opened > 0);
}

/// A header and decrypted metadata, for the fuzz target.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let header = image("Complete", &PIECES)[..512].to_vec();
    let entries = entries(&PIECES);
    let volume = list(0x1a, 7, 64, &volume_list(BYTES));
    let opens = list(0x19, 5, 48, &context("Complete"));
    let converting = list(0x19, 6, 48, &context("Converting"));
    vec![
        ("header", header),
        (
            "whole",
            [volume.clone(), opens.clone(), entries.clone()].concat(),
        ),
        (
            "converting",
            [volume.clone(), converting, entries.clone()].concat(),
        ),
        (
            "two-versions",
            [list(0x1a, 6, 64, &volume_list(512)), volume.clone(), opens].concat(),
        ),
        ("pieces", entries[..200].to_vec()),
        ("volume", volume[..900].to_vec()),
    ]
}
