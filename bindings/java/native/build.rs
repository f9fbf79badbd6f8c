//! Links the library so that it stays: a room's own thread may be at work when the last class that called it is collected.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux" || os == "android") {
        println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
