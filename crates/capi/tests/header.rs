//! The header says what the library has.

use std::path::Path;

/// In the order of the header.
const SOURCES: [&str; 11] = [
    "error",
    "types",
    "room",
    "keys",
    "file",
    "listing",
    "path",
    "names",
    "xattrs",
    "snapshots",
    "policy",
];

/// Rewrites the header where `UPDATE_HEADER` is set.
#[test]
fn the_header_in_the_repository_is_the_one_made_from_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let made = SOURCES
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |all, name| {
            all.with_src(here.join(format!("src/{name}.rs")))
        })
        .generate()
        .unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    // A heading of Rust's documentation; the text below it is for C programs too.
    let text = String::from_utf8(text)
        .unwrap()
        .replace("// # Safety\n", "");
    let file = here.join("include/strongroom.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "include/strongroom.h is out of date: UPDATE_HEADER=1 cargo test -p strongroom-capi --test header, and commit it"
    );
}
