//! The libraries against the test values of the standards, through the calls this crate makes of them.

use argon2::{Algorithm, Argon2, AssociatedData, ParamsBuilder, Version};
use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Key, KeyInit, XChaCha20Poly1305, XNonce};

const SUNSCREEN: &[u8] = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn counting<const N: usize>(from: u8) -> [u8; N] {
    std::array::from_fn(|at| from + at as u8)
}

#[test]
fn hkdf_sha256_is_that_of_rfc_5869_case_1() {
    struct Len;
    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            42
        }
    }
    let mut out = [0; 42];
    // The info in two pieces, as this crate gives it.
    hkdf::Salt::new(hkdf::HKDF_SHA256, &counting::<13>(0))
        .extract(&[0x0b; 22])
        .expand(&[&counting::<4>(0xf0), &counting::<6>(0xf4)], Len)
        .unwrap()
        .fill(&mut out)
        .unwrap();
    let expected =
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
    assert_eq!(hex(&out), expected);
}

#[test]
fn hmac_sha256_is_that_of_rfc_4231_case_1() {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &[0x0b; 20]);
    let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
    assert_eq!(hex(hmac::sign(&key, b"Hi There").as_ref()), expected);
}

#[test]
fn argon2id_is_that_of_rfc_9106_section_5_3() {
    let params = ParamsBuilder::new()
        .m_cost(32)
        .t_cost(3)
        .p_cost(4)
        .data(AssociatedData::new(&[4; 12]).unwrap())
        .build()
        .unwrap();
    let mut out = [0; 32];
    Argon2::new_with_secret(&[3; 8], Algorithm::Argon2id, Version::V0x13, params)
        .unwrap()
        .hash_password_into(&[1; 32], &[2; 16], &mut out)
        .unwrap();
    let expected = "0d640df58d78766c08c037a34a8b53c9d01ef0452d75b65eb52520e96b01e659";
    assert_eq!(hex(&out), expected);
}

#[test]
fn chacha20_poly1305_is_that_of_rfc_8439_section_2_8_2() {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &counting::<32>(0x80)).unwrap();
    let nonce = [
        0x07, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47,
    ];
    let data = [
        0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
    ];
    let mut text = SUNSCREEN.to_vec();
    let tag = LessSafeKey::new(key)
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(data),
            &mut text,
        )
        .unwrap();
    assert_eq!(hex(&text[..16]), "d31a8d34648e60db7b86afbc53ef7ec2");
    assert_eq!(hex(tag.as_ref()), "1ae10b594f09e26a7e902ecbd0600691");
}

#[test]
fn aes_256_gcm_is_that_of_the_gcm_specification_case_14() {
    let key = UnboundKey::new(&AES_256_GCM, &[0; 32]).unwrap();
    let mut text = [0; 16];
    let tag = LessSafeKey::new(key)
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key([0; 12]),
            Aad::empty(),
            &mut text,
        )
        .unwrap();
    assert_eq!(hex(&text), "cea7403d4d606b6e074ec5d3baf39d18");
    assert_eq!(hex(tag.as_ref()), "d0d1c8a799996bf0265b98b5d48ab919");
}

#[test]
fn xchacha20_poly1305_is_that_of_its_draft_appendix_a_3_1() {
    let data = [
        0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
    ];
    let mut text = SUNSCREEN.to_vec();
    let tag = XChaCha20Poly1305::new(&Key::from(counting::<32>(0x80)))
        .encrypt_inout_detached(
            &XNonce::from(counting::<24>(0x40)),
            &data,
            text.as_mut_slice().into(),
        )
        .unwrap();
    assert_eq!(hex(&tag), "c0875924c1c7987947deafd8780acf49");
}
