//! What the files hold: pages that say themselves whose they are and how new, so that a lost, old or foreign one shows.

/// Bytes of a page; a file has whole pages only.
pub const PAGE: usize = 4096;
const MAGIC: u64 = 0x7374_726f_6e67_726d;

/// Which page of which version of which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    pub seed: u64,
    pub writer: u64,
    pub file: u64,
    pub page: u64,
    pub version: u64,
}

/// The page's bytes: its name, then noise that follows from it.
pub fn page(name: Name) -> Vec<u8> {
    let Name {
        seed,
        writer,
        file,
        page,
        version,
    } = name;
    let mut words = vec![MAGIC, seed, writer, file, page, version];
    let state = words.iter().fold(1_u64, |hash, word| {
        (hash ^ word).wrapping_mul(0x100_0000_01b3)
    });
    let mut random = fastrand::Rng::with_seed(state);
    while words.len() < PAGE / 8 {
        words.push(random.u64(..));
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// How many pages a file has.
pub fn pages_of(file: u64) -> u64 {
    [1, 2, 5, 16, 1, 40, 3, 300][file as usize % 8]
}

/// All bytes of a version of a file.
pub fn content(seed: u64, writer: u64, file: u64, version: u64) -> Vec<u8> {
    (0..pages_of(file))
        .flat_map(|number| {
            page(Name {
                seed,
                writer,
                file,
                page: number,
                version,
            })
        })
        .collect()
}

/// The version of a page that was found; 0 for zeros. An error says what is wrong with it: it is no page that was ever
/// written there.
pub fn version_of(
    bytes: &[u8],
    seed: u64,
    writer: u64,
    file: u64,
    number: u64,
) -> Result<u64, String> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    if bytes.len() != PAGE {
        return Err(format!("page {number} has {} bytes", bytes.len()));
    }
    let version = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let wanted = page(Name {
        seed,
        writer,
        file,
        page: number,
        version,
    });
    if wanted == bytes {
        return Ok(version);
    }
    let at = wanted.iter().zip(bytes).take_while(|(a, b)| a == b).count();
    Err(format!(
        "page {number} is none that was written there: it says version {version}, and differs from byte {at} on: {}",
        bytes[..64].escape_ascii()
    ))
}
