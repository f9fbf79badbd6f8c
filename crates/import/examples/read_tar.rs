//! Writes a tar archive and lists it: each member's path, kind and size, with its data.
//!
//! `cargo run -p strongroom-import --example read_tar -- DIRECTORY`: writes `DIRECTORY/letters.tar`. `tar -tvf` lists it too.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use import::tar::{Member, MemberKind, Reader, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let dir: PathBuf = std::env::args_os().nth(1).ok_or("which directory?")?.into();
    let path = dir.join("letters.tar");
    write(File::create(&path)?)?;

    let mut reader = Reader::new(BufReader::new(File::open(&path)?));
    // An archive is not trusted: names, sizes and counts are bounded, and a path has no empty part, `.`, `..` or NUL.
    while let Some(member) = reader.next_member()? {
        let names: Vec<_> = member
            .path
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        // The name was not complete. It must not be made under another one.
        if member.cut {
            println!("left out: {}", names.join("/"));
            continue;
        }
        let (mut buf, mut text) = ([0; 4096], Vec::new());
        // Only what is data comes, with its place: a sparse file's holes stay holes.
        while let Some((_offset, len)) = reader.read_data(&mut buf)? {
            text.extend_from_slice(&buf[..len]);
        }
        println!(
            "{}: {:?}, {}",
            names.join("/"),
            member.kind,
            String::from_utf8_lossy(&text)
        );
    }
    Ok(())
}

fn write(to: File) -> Result<(), Box<dyn Error>> {
    let text = b"hello";
    let mut writer = Writer::new(BufWriter::new(to));
    // Paths are bytes, as on Linux.
    writer.member(&Member {
        path: vec![b"letters".to_vec(), b"hello.txt".to_vec()],
        cut: false,
        kind: MemberKind::File {
            size: text.len() as u64,
            data: None,
        },
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        mtime: (1_700_000_000, 0),
        atime: None,
        xattrs: Vec::new(),
        acls: [None, None],
    })?;
    writer.data(text)?;
    // Without its end an archive is cut short, which readers refuse.
    writer.end()?.into_inner()?.sync_all()?;
    Ok(())
}
