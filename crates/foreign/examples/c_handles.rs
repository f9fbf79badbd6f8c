//! A function for C on top of Rust: what a caller passes is checked before it is used, and a handle is a number.
//!
//! `cargo run -p strongroom-foreign --example c_handles`. A library has only the `extern "C"` functions, and is of crate type `cdylib`;
//! `main` here calls them as a C program would. Writes no file.

use std::ffi::c_char;
use std::sync::Mutex;

use embed::Result;

/// What a handle leads to. Any thread may use it at any time.
type Text = Mutex<Vec<u8>>;

/// A new text; it is over with `text_close`.
extern "C" fn text_new() -> u64 {
    // Numbers are never used twice, so that a stale one finds nothing; an address could find somebody else's object.
    foreign::insert(Text::default())
}

/// Appends, and returns the length, or -1.
///
/// # Safety
/// `more` is NULL or points to a text that ends with NUL.
unsafe extern "C" fn text_append(handle: u64, more: *const c_char) -> i64 {
    let append = || -> Result<i64> {
        let text = foreign::get::<Text>(handle, "text")?;
        // SAFETY: the caller's promise. NULL, and a text that does not end, are errors.
        let more = unsafe { foreign::text(more, "more") }?;
        let mut text = text.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        text.extend_from_slice(more);
        Ok(text.len() as i64)
    };
    // A panic that leaves an `extern "C"` function ends the program: `guard` makes it an error.
    embed::guard(append).unwrap_or_else(|error| {
        println!("refused: {error}");
        -1
    })
}

/// Closes a text; 0, or -1 where it was closed already.
extern "C" fn text_close(handle: u64) -> i32 {
    match foreign::remove::<Text>(handle, "text") {
        Ok(_) => 0,
        Err(_) => -1,
    }
}

fn main() {
    let text = text_new();
    // SAFETY: a text that ends with NUL, and NULL.
    unsafe {
        println!("length {}", text_append(text, c"hello".as_ptr()));
        text_append(text, std::ptr::null());
    }
    println!("closed {}, again {}", text_close(text), text_close(text));
    // SAFETY: as above. The handle leads nowhere any more.
    unsafe { text_append(text, c"late".as_ptr()) };
}
