//! What sealing and opening units promises, whatever the bytes.

use proptest::prelude::*;
use seal::{
    BLOCK_LEN, MasterKey, NoncePart, RoomId, SealError, SegmentKey, Suite, TAG_LEN, UNIT_LEN,
};
use strongroom_seal as seal;

const PART: NoncePart = NoncePart([1, 2, 3, 4]);

fn key(suite: Suite, salt: u8) -> SegmentKey {
    let master = MasterKey::from_bytes(&[7; 32]);
    master
        .data_key(&RoomId::from_bytes([1; 16]))
        .segment_key(suite, &[salt; 32])
}

fn suites() -> impl Strategy<Value = Suite> {
    prop::sample::select(Suite::ALL.to_vec())
}

/// A unit of one to four blocks.
fn units() -> impl Strategy<Value = Vec<u8>> {
    (1..=UNIT_LEN / BLOCK_LEN, any::<u64>()).prop_map(|(blocks, seed)| {
        let mut state = seed | 1;
        let next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next)
            .take(blocks * BLOCK_LEN)
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_sealed_opens_again(suite in suites(), block: u64, plain in units()) {
        let key = key(suite, 1);
        let mut unit = plain.clone();
        let tag = key.seal(PART, block, &mut unit);
        prop_assert!(unit != plain);
        key.open(PART, block, &tag, &mut unit).unwrap();
        prop_assert!(unit == plain);
    }

    #[test]
    fn any_flipped_bit_is_refused_and_leaves_zeros(
        suite in suites(), block: u64, plain in units(), at: prop::sample::Index, bit in 0..8u8,
    ) {
        let key = key(suite, 1);
        let mut unit = plain;
        let mut tag = key.seal(PART, block, &mut unit);
        let at = at.index(unit.len() + TAG_LEN);
        match at.checked_sub(unit.len()) {
            Some(at) => tag[at] ^= 1 << bit,
            None => unit[at] ^= 1 << bit,
        }
        let refused = key.open(PART, block, &tag, &mut unit);
        let named = matches!(refused, Err(SealError::Corrupt { block: place }) if place == block);
        prop_assert!(named);
        prop_assert!(unit.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_unit_opens_nowhere_else(suite in suites(), block: u64, other: u64, plain in units()) {
        prop_assume!(block != other);
        let mut unit = plain;
        let tag = key(suite, 1).seal(PART, block, &mut unit);
        let mut again = unit.clone();
        prop_assert!(key(suite, 1).open(PART, other, &tag, &mut again).is_err());
        prop_assert!(key(suite, 2).open(PART, block, &tag, &mut unit).is_err());
    }

    /// Two writers with one key, as a copied memory makes them: with parts of their own, what they store at one position
    /// does not show how their data differs.
    #[test]
    fn one_position_sealed_with_two_parts_has_two_key_streams(
        suite in suites(), block: u64, part: [u8; 4], other: [u8; 4], plain in units(), flip: u8,
    ) {
        prop_assume!(part != other);
        let (part, other, key) = (NoncePart(part), NoncePart(other), key(suite, 1));
        let (mut one, mut two) = (plain.clone(), plain.clone());
        two.iter_mut().for_each(|byte| *byte ^= flip);
        let tag = key.seal(part, block, &mut one);
        key.seal(other, block, &mut two);
        prop_assert!(one.iter().zip(&two).any(|(a, b)| a ^ b != flip));
        prop_assert!(key.open(other, block, &tag, &mut one.clone()).is_err());
        key.open(part, block, &tag, &mut one).unwrap();
        prop_assert!(one == plain);
    }

    #[test]
    fn two_units_that_changed_places_are_refused(suite in suites(), one in units(), two in units()) {
        let key = key(suite, 1);
        let (mut one, mut two) = (one, two);
        let (first, second) = (key.seal(PART, 0, &mut one), key.seal(PART, 4, &mut two));
        prop_assert!(key.open(PART, 0, &second, &mut two).is_err());
        prop_assert!(key.open(PART, 4, &first, &mut one).is_err());
    }
}

#[test]
fn a_shortened_unit_is_refused() {
    for suite in Suite::ALL {
        let mut unit = vec![3; UNIT_LEN];
        let tag = key(suite, 1).seal(PART, 0, &mut unit);
        assert!(
            key(suite, 1)
                .open(PART, 0, &tag, &mut unit[..BLOCK_LEN])
                .is_err()
        );
    }
}

#[test]
fn a_unit_sealed_in_one_suite_fails_authentication_in_the_other() {
    let mut unit = vec![3; UNIT_LEN];
    let tag = key(Suite::Aes256Gcm, 1).seal(PART, 0, &mut unit);
    assert!(
        key(Suite::ChaCha20Poly1305, 1)
            .open(PART, 0, &tag, &mut unit)
            .is_err()
    );
}

#[test]
#[should_panic(expected = "whole blocks")]
fn a_unit_of_part_of_a_block_is_a_bug() {
    key(Suite::Aes256Gcm, 1).seal(PART, 0, &mut [0; 100]);
}

#[test]
fn a_segment_key_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&key(Suite::Aes256Gcm, 1));
    assert_eq!(
        format!("{:?}", key(Suite::Aes256Gcm, 1)),
        "SegmentKey(aes-256-gcm, ..)"
    );
}

#[test]
fn a_segment_header_changed_or_signed_in_another_room_is_refused() {
    let master = MasterKey::random();
    let (room, other) = (RoomId::random(), RoomId::random());
    let mac = master.segment_header_key(&room).mac(b"segment 1");
    let key = master.segment_header_key(&room);
    key.verify(b"segment 1", &mac).unwrap();
    assert!(matches!(
        key.verify(b"segment 2", &mac),
        Err(SealError::MacMismatch)
    ));
    assert!(key.verify(b"segment 1", &mac[..31]).is_err());
    assert!(
        master
            .segment_header_key(&other)
            .verify(b"segment 1", &mac)
            .is_err()
    );
    assert!(master.header_key(&room).verify(b"segment 1", &mac).is_err());
}

#[test]
fn keys_are_never_printed() {
    let (master, room) = (MasterKey::from_bytes(&[0xab; 32]), RoomId::random());
    let printed = format!(
        "{master:?} {:?} {:?} {:?} {:?} {:?}",
        master.header_key(&room),
        master.catalog_key(&room),
        master.data_key(&room),
        master.segment_header_key(&room),
        master.page_digest_key(&room)
    );
    assert_eq!(
        printed,
        "MasterKey(..) HeaderKey(..) CatalogKey(..) DataKey(..) SegmentHeaderKey(..) PageDigestKey(..)"
    );
}
