//! What a header lists more than once.

use serde_json::json;
use volume::luks::{FormatOptions, LuksError};
use volume::{Credential, OpenOptions};
use zeroize::Zeroizing;

use crate::common::*;
use crate::malformed::{changed, try_read};

/// It was not taken for the last, and went without force.
#[test]
fn the_last_slot_stays_also_where_its_digest_lists_it_twice() {
    let image = changed(|j| j["digests"]["0"]["keyslots"] = json!(["0", "0"]));
    let mut luks = try_read(&image).unwrap();
    assert!(matches!(luks.remove_key(0), Err(LuksError::LastSlot(0))));
    assert!(all(&**luks.device()) == image);
    luks.remove_last_key(0).unwrap();
}

#[test]
fn an_opened_volume_says_how_long_its_sectors_are() {
    for (options, expected) in [
        (
            FormatOptions {
                sector_size: Some(4096),
                ..cheap()
            },
            4096,
        ),
        (
            FormatOptions {
                sector_size: Some(512),
                ..cheap()
            },
            512,
        ),
        (cheap_luks1(), 512),
    ] {
        let (device, _) = small(&options);
        let credential = Credential::Passphrase(Zeroizing::new(PASS.to_vec()));
        let how = OpenOptions::default();
        let opened = volume::open_as_recognised(device, None, &credential, how).unwrap();
        assert_eq!(opened.sector_size, expected);
    }
}
