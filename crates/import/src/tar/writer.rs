//! Writing a stream: pax headers where a ustar header cannot say it all.

use std::io::{self, Write};

use ::tar::{EntryType, Header};

use super::{BLOCK, Member, MemberKind, pax, sparse};

/// A stream being written. Data of a file is what [`Writer::data`] is given between two members, exactly as long as its ranges are.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    /// Bytes of the present member's data that are due still.
    due: u64,
    padding: usize,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl<W: Write> Writer<W> {
    /// A stream from its start.
    pub fn new(to: W) -> Self {
        Self {
            to,
            due: 0,
            padding: 0,
        }
    }

    /// Begins a member. `InvalidInput` where the data of the one before is not complete, or the member is of no kind that a stream
    /// has.
    pub fn member(&mut self, member: &Member) -> io::Result<()> {
        self.end_data()?;
        let mut records = Vec::new();
        let mut name = member.path.join(&b'/');
        if name.is_empty() {
            name.push(b'.');
        }
        if member.kind == MemberKind::Directory {
            name.push(b'/');
        }
        let mut map = Vec::new();
        let (kind, mut stored, target, device) = match &member.kind {
            MemberKind::File { size, data: None } => (EntryType::Regular, *size, None, None),
            MemberKind::File {
                size,
                data: Some(ranges),
            } => {
                map = sparse::written(ranges, *size);
                pax::add(&mut records, b"GNU.sparse.major", b"1");
                pax::add(&mut records, b"GNU.sparse.minor", b"0");
                pax::add(&mut records, b"GNU.sparse.name", &name);
                pax::add(
                    &mut records,
                    b"GNU.sparse.realsize",
                    size.to_string().as_bytes(),
                );
                // What programs that know no sparse files take it for.
                name = [b"GNUSparseFile.0/".as_slice(), &name].concat();
                let data: u64 = ranges.iter().map(|(start, end)| end - start).sum();
                (EntryType::Regular, map.len() as u64 + data, None, None)
            }
            MemberKind::HardLink(to) => (EntryType::Link, 0, Some(to.join(&b'/')), None),
            MemberKind::Symlink(to) => (EntryType::Symlink, 0, Some(to.clone()), None),
            MemberKind::Directory => (EntryType::Directory, 0, None, None),
            MemberKind::Fifo => (EntryType::Fifo, 0, None, None),
            MemberKind::CharDevice(major, minor) => {
                (EntryType::Char, 0, None, Some((*major, *minor)))
            }
            MemberKind::BlockDevice(major, minor) => {
                (EntryType::Block, 0, None, Some((*major, *minor)))
            }
            MemberKind::Other(_) => return Err(invalid("a member of no known kind")),
        };
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        // A sparse file's own name is in a record already.
        let is_named = !map.is_empty();
        names(
            &mut header,
            &mut records,
            &name,
            is_named,
            target.as_deref(),
        );
        header.set_mode(u32::from(member.mode));
        for (key, number) in [("uid", member.uid), ("gid", member.gid)] {
            // Seven octal digits.
            let fits = number < 1 << 21;
            if !fits {
                pax::add(&mut records, key.as_bytes(), number.to_string().as_bytes());
            }
            let number = if fits { u64::from(number) } else { 0 };
            match key {
                "uid" => header.set_uid(number),
                _ => header.set_gid(number),
            }
        }
        if stored >= 1 << 33 {
            pax::add(&mut records, b"size", stored.to_string().as_bytes());
            header.set_size(0);
        } else {
            header.set_size(stored);
        }
        let (secs, nanos) = member.mtime;
        let fits = (0..1 << 33).contains(&secs);
        header.set_mtime(if fits { secs as u64 } else { 0 });
        if nanos > 0 || !fits {
            let text = pax::moment_text(member.mtime);
            pax::add(&mut records, b"mtime", text.as_bytes());
        }
        if let Some(atime) = member.atime {
            pax::add(&mut records, b"atime", pax::moment_text(atime).as_bytes());
        }
        if let Some((major, minor)) = device {
            header.set_device_major(major)?;
            header.set_device_minor(minor)?;
        }
        for (name, value) in &member.xattrs {
            let key = [b"SCHILY.xattr.".as_slice(), &pax::escape(name)].concat();
            pax::add(&mut records, &key, value);
        }
        for (key, text) in pax::ACLS.iter().zip(&member.acls) {
            if let Some(text) = text {
                pax::add(&mut records, key.as_bytes(), text);
            }
        }
        header.set_cksum();
        if !records.is_empty() {
            self.extension(&records)?;
        }
        self.to.write_all(header.as_bytes())?;
        self.to.write_all(&map)?;
        stored -= map.len() as u64;
        self.due = stored;
        self.padding = stored.wrapping_neg() as usize % BLOCK;
        Ok(())
    }

    /// The next bytes of the present member's data, its ranges one behind the other.
    pub fn data(&mut self, data: &[u8]) -> io::Result<()> {
        self.due = self
            .due
            .checked_sub(data.len() as u64)
            .ok_or_else(|| invalid("more data than the member has"))?;
        self.to.write_all(data)
    }

    /// Bytes of the present member's data that are due still.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Ends the stream, and returns the underlying writer.
    pub fn end(mut self) -> io::Result<W> {
        self.end_data()?;
        self.to.write_all(&[0; 2 * BLOCK])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn end_data(&mut self) -> io::Result<()> {
        if self.due > 0 {
            return Err(invalid("less data than the member has"));
        }
        self.to.write_all(&[0; BLOCK][..self.padding])?;
        self.padding = 0;
        Ok(())
    }

    fn extension(&mut self, records: &[u8]) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.as_old_mut().name[..10].copy_from_slice(b"PaxHeaders");
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(records.len() as u64);
        header.set_cksum();
        self.to.write_all(header.as_bytes())?;
        self.to.write_all(records)?;
        let padding = records.len().wrapping_neg() % BLOCK;
        self.to.write_all(&[0; BLOCK][..padding])
    }
}

/// Name and target, shortened in the header where they do not fit, and whole in records then; the name only unless it `is_named` in one.
fn names(
    header: &mut Header,
    records: &mut Vec<u8>,
    name: &[u8],
    is_named: bool,
    target: Option<&[u8]>,
) {
    let old = header.as_old_mut();
    let len = name.len().min(old.name.len());
    old.name[..len].copy_from_slice(&name[..len]);
    if len < name.len() && !is_named {
        pax::add(records, b"path", name);
    }
    if let Some(target) = target {
        let len = target.len().min(old.linkname.len());
        old.linkname[..len].copy_from_slice(&target[..len]);
        if len < target.len() {
            pax::add(records, b"linkpath", target);
        }
    }
}
