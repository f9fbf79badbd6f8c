//! Tar streams: what we write comes back, what GNU tar writes is read, hostile ones end in an error.
#![allow(missing_docs)]

use import::tar::{Member, MemberKind, Reader, Writer};

fn member(path: &str, kind: MemberKind) -> Member {
    Member {
        path: path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| part.as_bytes().to_vec())
            .collect(),
        cut: false,
        kind,
        mode: 0o4751,
        uid: 1000,
        gid: 3_000_000,
        mtime: (1_700_000_000, 123_456_789),
        atime: Some((-5, 250_000_000)),
        xattrs: Vec::new(),
        acls: [None, None],
    }
}

/// A member with its pieces: where each begins, and its bytes.
type Read = (Member, Vec<(u64, Vec<u8>)>);

fn all(stream: &[u8]) -> import::Result<Vec<Read>> {
    let mut reader = Reader::new(stream);
    let mut found = Vec::new();
    while let Some(member) = reader.next_member()? {
        let (mut pieces, mut buf) = (Vec::new(), vec![0; 1000]);
        while let Some((at, len)) = reader.read_data(&mut buf)? {
            pieces.push((at, buf[..len].to_vec()));
        }
        found.push((member, pieces));
    }
    Ok(found)
}

fn sample() -> Vec<(Member, Vec<u8>)> {
    let mut rich = member(
        "d/rich",
        MemberKind::File {
            size: 700,
            data: None,
        },
    );
    rich.xattrs = vec![
        (b"user.a=b%c".to_vec(), b"new\nline\0nul\xFF".to_vec()),
        (b"user.empty".to_vec(), Vec::new()),
    ];
    rich.uid = u32::MAX - 1;
    rich.mtime = (1 << 34, 0);
    vec![
        (member("", MemberKind::Directory), Vec::new()),
        (member("d", MemberKind::Directory), Vec::new()),
        (rich, vec![7; 700]),
        (
            member(
                &format!("d/{}", "sparse".repeat(30)),
                MemberKind::File {
                    size: 1 << 40,
                    data: Some(vec![(0, 10), (4096, 5000), (1 << 39, (1 << 39) + 512)]),
                },
            ),
            vec![9; 10 + 904 + 512],
        ),
        (
            member(
                "d/hole",
                MemberKind::File {
                    size: 12345,
                    data: Some(vec![]),
                },
            ),
            Vec::new(),
        ),
        (
            member("l", MemberKind::Symlink("t".repeat(300).into_bytes())),
            Vec::new(),
        ),
        (
            member(
                "h",
                MemberKind::HardLink(vec![b"d".to_vec(), b"rich".to_vec()]),
            ),
            Vec::new(),
        ),
        (member("null", MemberKind::CharDevice(1, 3)), Vec::new()),
        (
            member("disk", MemberKind::BlockDevice(254, 70000)),
            Vec::new(),
        ),
        (member("fifo", MemberKind::Fifo), Vec::new()),
    ]
}

fn written(sample: &[(Member, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (member, data) in sample {
        writer.member(member).unwrap();
        for piece in data.chunks(300) {
            writer.data(piece).unwrap();
        }
    }
    writer.end().unwrap()
}

#[test]
fn what_is_written_comes_back() {
    let sample = sample();
    let found = all(&written(&sample)).unwrap();
    assert_eq!(found.len(), sample.len());
    for ((member, data), (found, pieces)) in sample.iter().zip(&found) {
        assert_eq!(found, member);
        let whole: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.clone()).collect();
        assert_eq!(&whole, data);
        if let MemberKind::File {
            data: Some(ranges), ..
        } = &member.kind
        {
            for (at, piece) in pieces {
                assert!(
                    ranges
                        .iter()
                        .any(|(start, end)| start <= at && at + piece.len() as u64 <= *end)
                );
            }
        }
    }
}

#[test]
fn no_path_leads_out() {
    let mut members = Vec::new();
    for path in ["/abs/x", "../../up", "a/../../b/../c", "./././d//e/."] {
        let mut one = member(
            "",
            MemberKind::File {
                size: 0,
                data: None,
            },
        );
        // The writer joins whatever it is given.
        one.path = vec![path.as_bytes().to_vec()];
        members.push((one, Vec::new()));
        members.push((
            member("h", MemberKind::HardLink(vec![path.as_bytes().to_vec()])),
            Vec::new(),
        ));
    }
    let found = all(&written(&members)).unwrap();
    for (pair, (expected, cut)) in
        found
            .chunks(2)
            .zip([("abs/x", true), ("up", true), ("c", true), ("d/e", false)])
    {
        assert_eq!(pair[0].0.path.join(&b'/'), expected.as_bytes());
        assert_eq!(pair[0].0.cut, cut);
        let MemberKind::HardLink(target) = &pair[1].0.kind else {
            panic!()
        };
        assert_eq!(target.join(&b'/'), expected.as_bytes());
    }
}

#[test]
fn a_stream_cut_short_or_changed_never_reads_as_whole() {
    let stream = written(&sample());
    let whole = all(&stream).unwrap();
    // Its last two blocks are the end, which some programs do not write.
    let near_a_block = |len: &usize| len % 512 < 2 || len % 512 == 511 || len.is_multiple_of(41);
    for len in (0..stream.len() - 1024).filter(near_a_block) {
        // An end at a member's border cannot be distinguished from a stream without an end.
        if let Ok(found) = all(&stream[..len]) {
            assert_eq!(found[..], whole[..found.len()], "cut at {len}");
            assert_eq!(len % 512, 0, "cut at {len}");
        }
    }
    for at in (0..stream.len() - 1024).step_by(29) {
        let mut bad = stream.clone();
        bad[at] ^= 0x55;
        // Data itself has no checksum in this format; nothing may hang or panic.
        let _ = all(&bad);
    }
    assert!(all(b"").is_err());
    assert!(
        all(b"\x1f\x8bxxxx")
            .unwrap_err()
            .to_string()
            .contains("gzip -d")
    );
    assert!(all(&[b'x'; 1024]).is_err());
}

#[test]
fn lengths_that_cannot_be_take_no_memory() {
    for (kind, size) in [(b'x', 1 << 40), (b'L', u64::MAX / 2), (b'g', 1 << 50)] {
        let mut header = tar::Header::new_gnu();
        header.set_path("x").unwrap();
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(size);
        header.set_cksum();
        assert!(matches!(
            all(header.as_bytes()),
            Err(import::Error::TooLarge(_))
        ));
    }
    for map in [
        "1\n0\n99999999999999999999\n",
        "2\n10\n5\n0\n5\n",
        "1\n5\n600\n",
        "9999999999\n",
        "x\n",
        "1\n0\n",
    ] {
        let file = member(
            "s",
            MemberKind::File {
                size: 512,
                data: Some(vec![(0, 512)]),
            },
        );
        let mut stream = written(&[(file, vec![1; 512])]);
        // Two blocks of pax header, the member's header, then the map.
        let at = stream.len() - 4 * 512;
        stream[at..at + 512].fill(0);
        stream[at..at + map.len()].copy_from_slice(map.as_bytes());
        assert!(
            matches!(all(&stream), Err(import::Error::Damaged(_))),
            "{map:?}"
        );
    }
}

#[test]
fn every_format_that_gnu_tar_writes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let long = "n".repeat(120);
    std::fs::create_dir(dir.path().join(&long)).unwrap();
    let data: Vec<u8> = (0..70_000_u32).map(|i| (i * 7) as u8).collect();
    std::fs::write(dir.path().join(&long).join("file"), &data).unwrap();
    let sparse = std::fs::File::create(dir.path().join("sparse")).unwrap();
    use std::os::unix::fs::FileExt;
    // More ranges than GNU's header and first extension hold.
    for n in 0..40 {
        sparse
            .write_all_at(&[n as u8 + 1; 4096], n * (1 << 20))
            .unwrap();
    }
    sparse.set_len(100 << 20).unwrap();
    std::os::unix::fs::symlink("s".repeat(150), dir.path().join("link")).unwrap();
    for format in [
        &["--format=gnu"][..],
        &["--format=oldgnu"],
        &["--format=posix"],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        let output = std::process::Command::new("tar")
            .args(["--sparse", "-cf", "-"])
            .args(format)
            .arg("-C")
            .arg(dir.path())
            .arg(".")
            .output();
        let Ok(output) = output else {
            eprintln!("skipped: there is no tar program");
            return;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found = all(&output.stdout).unwrap_or_else(|e| panic!("{format:?}: {e}"));
        let named = |name: &str| {
            found
                .iter()
                .find(|(member, _)| member.path.join(&b'/') == name.as_bytes())
                .unwrap_or_else(|| panic!("{format:?}: no {name}"))
        };
        let (_, pieces) = named(&format!("{long}/file"));
        let whole: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.clone()).collect();
        assert!(whole == data, "{format:?}");
        assert_eq!(
            named("link").0.kind,
            MemberKind::Symlink("s".repeat(150).into_bytes())
        );
        let (member, pieces) = named("sparse");
        let MemberKind::File {
            size,
            data: Some(_),
        } = &member.kind
        else {
            panic!("{format:?}")
        };
        assert_eq!(*size, 100 << 20);
        let mut sum = 0;
        for (at, piece) in pieces {
            sum += piece.len();
            for (n, byte) in piece.iter().enumerate() {
                assert_eq!(
                    u64::from(*byte),
                    (at + n as u64) / (1 << 20) + 1,
                    "{format:?}"
                );
            }
        }
        assert_eq!(sum, 40 * 4096, "{format:?}");
    }
}

/// A header of a member with `size` bytes of data.
fn header(kind: u8, name: &str, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header.set_cksum();
    header
}

/// An extended header, `kind` `x` or `g`, of one record.
fn extended(kind: u8, record: &str) -> Vec<u8> {
    let mut blocks = header(kind, "h", record.len() as u64).as_bytes().to_vec();
    blocks.extend(record.as_bytes());
    blocks.resize(blocks.len().next_multiple_of(512), 0);
    blocks
}

/// What failed: a stream that was cut off right behind the extended header of a member read as whole, without the member.
#[test]
fn a_stream_that_ends_between_a_member_s_headers_was_cut_short() {
    let end = [0; 1024];
    for (kind, record) in [(b'x', "9 path=a\n"), (b'L', "long\0"), (b'K', "long\0")] {
        let cut = extended(kind, record);
        for stream in [cut.clone(), [&cut[..], &end].concat()] {
            let error = all(&stream).unwrap_err().to_string();
            assert!(error.contains("cut short"), "{error}");
        }
    }
    // Of an empty tree, git writes this.
    assert_eq!(all(&extended(b'g', "13 comment=a\n")).unwrap(), []);
}

/// What failed: the sum of length and padding had one bit too many; the stream was read on at a wrong place.
#[test]
fn the_largest_length_that_a_number_has_is_only_one_that_is_cut_short() {
    for kind in [b'0', b'~'] {
        let mut stream = extended(b'x', "29 size=18446744073709551615\n");
        stream.extend(header(kind, "f", 0).as_bytes());
        stream.extend([1; 512]);
        let mut reader = Reader::new(&stream[..]);
        assert!(reader.next_member().unwrap().is_some());
        let error = reader.next_member().unwrap_err().to_string();
        assert!(error.contains("cut short"), "{error}");
    }
}

/// What failed: of two global headers the first one counted for the member right behind the second one.
#[test]
fn a_later_global_header_counts_and_a_member_s_own_counts_more() {
    let stream = [
        &extended(b'g', "11 mtime=1\n")[..],
        &extended(b'g', "11 mtime=2\n"),
        header(b'0', "second", 0).as_bytes(),
        &extended(b'x', "11 mtime=4\n"),
        &extended(b'g', "11 mtime=3\n"),
        header(b'0', "own", 0).as_bytes(),
        header(b'0', "third", 0).as_bytes(),
    ]
    .concat();
    let found = all(&stream).unwrap();
    let times: Vec<_> = found.iter().map(|(member, _)| member.mtime.0).collect();
    assert_eq!(times, [2, 4, 3]);
}

/// What failed: files from before 1970 in GNU's format became files of 1970.
#[test]
fn a_time_before_1970_in_a_header_is_read() {
    let mut old = header(b'0', "old", 0);
    old.as_old_mut().mtime = [0xFF; 12];
    old.as_old_mut().mtime[11] = 0xFE;
    old.set_cksum();
    assert_eq!(all(old.as_bytes()).unwrap()[0].0.mtime, (-2, 0));
}

/// What failed: the name of a file below a directory of this name was cut to a hundred bytes. Programs that know no sparse files create
/// such directories.
#[test]
fn a_long_name_that_looks_like_one_of_a_sparse_file_is_written_whole() {
    let kind = |data| MemberKind::File { size: 0, data };
    let path = format!("GNUSparseFile.0/{}", "n".repeat(200));
    let members = [None, Some(vec![])].map(|data| (member(&path, kind(data)), Vec::new()));
    let found = all(&written(&members)).unwrap();
    for ((found, _), (member, _)) in found.iter().zip(&members) {
        assert_eq!(found, member);
    }
}

/// What failed: a block of zeros in the middle of a stream was its end, and what followed was left out without a word.
#[test]
fn what_follows_the_end_of_a_stream_is_noticed() {
    let stream = written(&sample());
    let more = |stream: &[u8]| {
        let mut reader = Reader::new(stream);
        while reader.next_member().unwrap().is_some() {}
        reader.has_more()
    };
    assert!(!more(&stream));
    let mut padded = stream.clone();
    padded.resize(stream.len().next_multiple_of(10_240), 0);
    assert!(!more(&padded));
    assert!(more(&[&padded[..], &stream].concat()));
    // Some old programs fill the last record with what was in their memory.
    padded[stream.len()..].fill(b'x');
    assert!(!more(&padded));
    let members = ["a", "b", "c"].map(|name| *header(b'0', name, 0).as_bytes());
    let mut damaged = members.concat();
    damaged[512..1024].fill(0);
    assert!(more(&damaged));
}
