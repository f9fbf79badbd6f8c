//! A parser that keeps one directory, and nothing else of the machine's files and networks.
//!
//! `cargo run -p strongroom-confine --example drop_rights -- DIRECTORY`. Writes the file `letter` there.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use confine::{Profile, Strictness};

fn main() -> Result<(), Box<dyn Error>> {
    let inbox = PathBuf::from(std::env::args_os().nth(1).ok_or("which directory?")?);
    fs::write(inbox.join("letter"), "hello")?;

    let profile = Profile {
        read: vec![inbox.clone()],
        ..Profile::default()
    };
    // Before any other thread is there. An old kernel does what it can; `Strictness::Required` insists.
    let confined = confine::enter(&profile, Strictness::BestEffort)?;
    println!("{confined}");

    println!("kept: {}", fs::read_to_string(inbox.join("letter"))?);
    println!(
        "writing refused: {}",
        fs::write(inbox.join("letter"), "x").is_err()
    );
    println!("elsewhere refused: {}", fs::read("/etc/passwd").is_err());
    Ok(())
}
