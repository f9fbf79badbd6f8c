//! What the fuzz target for Android's footer tries, and what must hold whatever the bytes are: what parses has numbers within
//! their bounds, and a partition behind such a footer opens or is refused.

use std::sync::Arc;

use device::MemoryDevice;
use zeroize::Zeroizing;

use super::{Footer, open};
use crate::common::{Credential, OpenOptions};

/// A footer, from its first byte.
pub fn footer(bytes: &[u8]) {
    let Ok(footer) = Footer::parse(bytes) else {
        return;
    };
    assert!((1..=48).contains(&footer.key_len));
    assert!(footer.cipher.chars().all(|c| c.is_ascii_graphic()));
    assert_eq!(Footer::parse(bytes).ok().as_ref(), Some(&footer));

    // The key itself: whatever the key derivation costs is not what is tried here.
    let mut image = vec![0x5a; 64 << 10];
    let at = image.len() - (16 << 10);
    let len = bytes.len().min(16 << 10);
    image[at..at + len].copy_from_slice(&bytes[..len]);
    let key = Credential::MasterKey(Zeroizing::new(vec![7; footer.key_len]));
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    if let Ok((contents, _)) = open(
        Arc::new(MemoryDevice::read_only(image)),
        None,
        &key,
        options,
    ) {
        assert!(contents.len() <= at as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::seeds;
    use super::*;
    use crate::corpus;

    #[test]
    fn every_file_of_the_corpus_holds() {
        corpus::each("android", footer);
    }

    #[test]
    #[ignore = "rewrites the corpus's seeds: cargo test -p strongroom-volume -- --ignored seeds"]
    fn seeds_are_written() {
        corpus::replace_seeds("android", seeds());
    }
}
