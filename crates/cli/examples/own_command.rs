//! The `strongroom` command inside a program of your own: creates a room and lists it.
//!
//! `cargo run -p strongroom-cli --example own_command -- DIRECTORY`: `DIRECTORY/room` must not exist. A program that only needs files in a
//! room takes the crate `strongroom-room` instead: this is for one that offers its users the whole command.

use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use strongroom_cli::Exit;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let (room, key) = (dir.join("room"), dir.join("key"));
    // A secret is never an argument, which every user of the machine can see: it comes from a file, a prompt or standard input.
    std::fs::write(&key, [7; 32])?;

    for words in [&["create"][..], &["ls", "-l"], &["info", "--json"]] {
        // As on the command line; the first word is the program's name in messages.
        let mut arguments: Vec<OsString> = vec!["strongroom".into()];
        arguments.extend(words.iter().map(OsString::from));
        arguments.push(room.clone().into());
        arguments.push("--raw-key-file".into());
        arguments.push(key.clone().into());
        // A failure has been reported on standard error. Its number says what to do about it: `Exit`.
        let ended = strongroom_cli::run(arguments);
        if ended != Exit::Ok.into() {
            return Ok(ended);
        }
    }
    Ok(ExitCode::SUCCESS)
}
