//! What a header lists more than once.

use serde_json::json;
use volume::luks::LuksError;

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
