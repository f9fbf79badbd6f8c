//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsqlfs.so.1");
    // Rooms have threads, and the end of the program calls back: the library cannot be taken out of a process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
