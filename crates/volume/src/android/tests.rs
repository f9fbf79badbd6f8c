//! Footers made here, of every version, and what is refused.

use cbc::cipher::BlockModeEncrypt;
use device::MemoryDevice;

use super::*;

const SECTORS: u64 = 64;
const KEY: [u8; 16] = *b"a volume's key!!";
const SALT: [u8; 16] = *b"and its own salt";

/// What a phone would hold: a superblock's magic, encrypted, and a footer at the end.
struct Phone {
    minor: u16,
    kdf: [u8; 4],
    file_system: bool,
    check: bool,
}

impl Phone {
    fn derived(&self, passphrase: &[u8]) -> Derived {
        let mut derived = Derived::default();
        if self.minor >= 2 && self.kdf[0] == 2 {
            let [_, n, r, p] = self.kdf;
            let params = scrypt::Params::new(n, 1 << r, 1 << p).unwrap();
            scrypt::scrypt(passphrase, &SALT, &params, &mut derived[..]).unwrap();
        } else {
            pbkdf2::derive(
                pbkdf2::PBKDF2_HMAC_SHA1,
                PBKDF2_ROUNDS,
                &SALT,
                passphrase,
                &mut derived[..],
            );
        }
        derived
    }

    fn footer(&self, passphrase: &[u8]) -> Vec<u8> {
        let derived = self.derived(passphrase);
        let mut wrapped = KEY;
        cbc::Encryptor::<Aes128>::new_from_slices(&derived[..16], &derived[16..])
            .unwrap()
            .encrypt_padded::<NoPadding>(&mut wrapped, 16)
            .unwrap();
        let mut f = vec![0; 16384];
        let mut put = |at: usize, bytes: &[u8]| f[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &0xd0b5_b1c4_u32.to_le_bytes());
        put(4, &1_u16.to_le_bytes());
        put(6, &self.minor.to_le_bytes());
        put(8, &104_u32.to_le_bytes());
        put(16, &16_u32.to_le_bytes());
        put(24, &SECTORS.to_le_bytes());
        put(36, b"aes-cbc-essiv:sha256");
        put(104, &wrapped);
        put(152, &SALT);
        if self.minor >= 2 {
            put(188, &self.kdf);
        }
        if self.check {
            let [_, n, r, p] = self.kdf;
            let params = scrypt::Params::new(n, 1 << r, 1 << p).unwrap();
            let mut check = [0; 32];
            scrypt::scrypt(&derived[..16], &SALT, &params, &mut check).unwrap();
            put(2284, &check);
        }
        f
    }

    fn contents(&self) -> Vec<u8> {
        let mut plain = vec![0x61; SECTORS as usize * 512];
        if self.file_system {
            plain[1024 + 56..1024 + 58].copy_from_slice(&0xef53_u16.to_le_bytes());
        }
        plain
    }

    fn image(&self, passphrase: &[u8]) -> Vec<u8> {
        let mut image = self.contents();
        SectorCipher::new("aes-cbc-essiv:sha256", &KEY, 512)
            .unwrap()
            .encrypt(&mut image, 0);
        image.extend(self.footer(passphrase));
        image
    }
}

fn try_open(
    image: Vec<u8>,
    credential: &Credential,
    read_only: bool,
) -> Result<(Arc<dyn Device>, Certainty), VolumeError> {
    let options = OpenOptions {
        read_only,
        ..OpenOptions::default()
    };
    open(
        Arc::new(MemoryDevice::read_only(image)),
        None,
        credential,
        options,
    )
}

fn passphrase(text: &str) -> Credential {
    Credential::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))
}

fn all(device: &dyn Device) -> Vec<u8> {
    let mut all = vec![0; device.len() as usize];
    device.read_at(&mut all, 0).unwrap();
    all
}

const CHEAP_SCRYPT: [u8; 4] = [2, 4, 1, 0];

#[test]
fn every_version_opens_with_its_passphrase() {
    for (minor, kdf) in [
        (0, [0; 4]),
        (1, [0; 4]),
        (2, [1, 0, 0, 0]),
        (2, CHEAP_SCRYPT),
        (3, [1, 0, 0, 0]),
        (3, CHEAP_SCRYPT),
    ] {
        let phone = Phone {
            minor,
            kdf,
            file_system: true,
            check: minor == 3 && kdf[0] == 2,
        };
        let (device, certainty) =
            try_open(phone.image(b"4711"), &passphrase("4711"), false).unwrap();
        assert_eq!(certainty, Certainty::Checked);
        assert_eq!(device.len(), SECTORS * 512);
        assert!(all(&*device) == phone.contents(), "1.{minor}, {kdf:?}");
    }
}

#[test]
fn a_wrong_passphrase_is_noticed_by_the_check_and_never_writes_without_one() {
    let mut phone = Phone {
        minor: 3,
        kdf: CHEAP_SCRYPT,
        file_system: false,
        check: true,
    };
    let image = phone.image(b"right");
    try_open(image.clone(), &passphrase("right"), false).unwrap();
    let error = try_open(image, &passphrase("wrong"), true).unwrap_err();
    assert!(matches!(error, VolumeError::WrongCredential(_)), "{error}");

    phone.check = false;
    let image = phone.image(b"right");
    let (_, certainty) = try_open(image.clone(), &passphrase("wrong"), true).unwrap();
    assert_eq!(certainty, Certainty::Unknown);
    let error = try_open(image, &passphrase("wrong"), false).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[test]
fn a_check_that_a_crash_left_behind_does_not_hide_a_file_system() {
    let phone = Phone {
        minor: 3,
        kdf: CHEAP_SCRYPT,
        file_system: true,
        check: true,
    };
    let mut image = phone.image(b"4711");
    let at = image.len() - 16384 + 2284;
    image[at] ^= 1;
    let (_, certainty) = try_open(image, &passphrase("4711"), false).unwrap();
    assert_eq!(certainty, Certainty::Checked);
}

#[test]
fn keys_bound_to_hardware_are_named_so_and_the_key_itself_opens_them() {
    for kind in 3..=5 {
        let phone = Phone {
            minor: 3,
            kdf: [kind, 4, 1, 0],
            file_system: true,
            check: false,
        };
        let image = phone.image(b"4711");
        let error = try_open(image.clone(), &passphrase("4711"), true).unwrap_err();
        assert!(matches!(error, VolumeError::HardwareBound(_)));
        assert!(error.to_string().contains("hardware"), "{error}");
        let key = Credential::MasterKey(Zeroizing::new(KEY.to_vec()));
        let (device, _) = try_open(image.clone(), &key, false).unwrap();
        assert!(all(&*device) == phone.contents());
        let short = Credential::MasterKey(Zeroizing::new(vec![1; 15]));
        let error = try_open(image, &short, true).unwrap_err();
        assert!(matches!(error, VolumeError::WrongCredential(_)));
    }
}

#[test]
fn a_footer_in_a_file_of_its_own_serves_the_partition() {
    let phone = Phone {
        minor: 2,
        kdf: CHEAP_SCRYPT,
        file_system: true,
        check: false,
    };
    let mut image = phone.image(b"4711");
    let footer = image.split_off(SECTORS as usize * 512);
    for header in [footer.clone(), footer[..192].to_vec()] {
        let header = MemoryDevice::read_only(header);
        let image = Arc::new(MemoryDevice::read_only(image.clone()));
        let (device, _) = open(
            image,
            Some(&header),
            &passphrase("4711"),
            OpenOptions::default(),
        )
        .unwrap();
        assert!(all(&*device) == phone.contents());
    }
}

#[test]
fn each_nonsense_in_a_footer_is_refused() {
    let phone = Phone {
        minor: 3,
        kdf: CHEAP_SCRYPT,
        file_system: true,
        check: true,
    };
    let good = phone.image(b"4711");
    let footer = good.len() - 16384;
    let cases: [(&str, usize, &[u8]); 14] = [
        ("major", 4, &[2, 0]),
        ("minor", 6, &[4, 0]),
        ("no key", 16, &[0; 4]),
        ("long key", 16, &[49, 0, 0, 0]),
        ("odd key", 16, &[17, 0, 0, 0]),
        ("no sectors", 24, &[0; 8]),
        ("a sector too many", 24, &[65, 0, 0, 0, 0, 0, 0, 0]),
        ("overflowing sectors", 24, &[0xff; 8]),
        ("cipher", 36, b"rot13-cbc-plain\0"),
        ("no text", 36, &[0xff, 0xfe]),
        ("key derivation", 188, &[9]),
        ("costs that eat the machine", 189, &[25, 9, 0]),
        ("costs beyond sense", 189, &[255, 255, 255]),
        ("an interrupted encryption", 192, &[3, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (what, at, bytes) in cases {
        let mut image = good.clone();
        image[footer + at..footer + at + bytes.len()].copy_from_slice(bytes);
        let error = try_open(image, &passphrase("4711"), true);
        assert!(error.is_err(), "{what} was taken");
    }
    for flags in [1_u8, 2, 4, 8] {
        let mut image = good.clone();
        image[footer + 12] = flags;
        assert!(
            try_open(image, &passphrase("4711"), true).is_err(),
            "flag {flags}"
        );
    }
}

#[test]
fn a_footer_cut_anywhere_is_refused_without_a_panic() {
    let phone = Phone {
        minor: 3,
        kdf: CHEAP_SCRYPT,
        file_system: true,
        check: true,
    };
    let footer = phone.footer(b"4711");
    for len in 0..2316 {
        assert!(
            Footer::parse(&footer[..len]).is_err(),
            "{len} bytes were taken"
        );
    }
    Footer::parse(&footer[..2316]).unwrap();
}

/// Footers of every kind, for the fuzz target.
pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let kinds: [(&str, u16, [u8; 4]); 6] = [
        ("1.0", 0, [0; 4]),
        ("1.1", 1, [0; 4]),
        ("1.2-pbkdf2", 2, [1, 0, 0, 0]),
        ("1.2-scrypt", 2, CHEAP_SCRYPT),
        ("1.3-scrypt", 3, CHEAP_SCRYPT),
        ("1.3-hardware", 3, [5, 4, 1, 0]),
    ];
    kinds
        .into_iter()
        .map(|(name, minor, kdf)| {
            let phone = Phone {
                minor,
                kdf,
                file_system: true,
                check: name == "1.3-scrypt",
            };
            let mut footer = phone.footer(b"4711");
            footer.truncate(if minor < 3 { 192 } else { 2348 });
            (name, footer)
        })
        .collect()
}
