//! How the shared library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The name that programs ask for: its number rises when a program would have to be compiled again.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libstrongroom.so.0");
    // Rooms have threads, and the end of the program calls back: the library cannot be taken out of a process.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
