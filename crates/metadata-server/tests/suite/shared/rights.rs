//! Rights, and what becomes of them.

use metadata_client::ClientOptions;
use room::{Access, Error, FileFlags, FileKind, FileSystem, Inode, InodeNo, NewFile, SetAttr};

use super::common::{LONG, Shared, noise};

pub(crate) fn new(uid: u32, mode: u16) -> NewFile {
    NewFile {
        kind: FileKind::Regular,
        mode,
        umask: 0,
        uid,
        gid: uid,
        rdev: 0,
        target: Vec::new(),
    }
}

fn made(client: &dyn FileSystem, name: &[u8], mode: u16, bytes: &[u8]) -> Inode {
    let inode = client.make(InodeNo::ROOT, name, &new(0, mode)).unwrap();
    client.open(inode.no, Access::WRITE).unwrap();
    client.write(inode.no, 0, bytes).unwrap();
    client.flush(inode.no).unwrap();
    client.close(inode.no, Access::WRITE);
    inode
}

#[test]
fn a_revoked_right_fails_at_the_disk_and_for_the_program() {
    let shared = Shared::new();
    let (root, alice) = (shared.client("root", 0), shared.client("alice", 1000));
    let bytes = noise(1, 3 << 20);
    let inode = made(&*root, b"f", 0o644, &bytes);
    alice.open(inode.no, Access::READ).unwrap();
    let mut read = vec![0; 1 << 20];
    // All maps and rights for it are with the client from now on.
    assert_eq!(alice.read(inode.no, 0, &mut read).unwrap(), 1 << 20);
    assert!(read == bytes[..1 << 20]);
    let revoked = |shared: &Shared| -> u64 {
        let of = |d: &super::common::OneDisk| d.refused_as_revoked();
        shared.disks.iter().map(of).sum()
    };
    let before = revoked(&shared);
    root.set_attributes(inode.no, &SetAttr::mode(0o600))
        .unwrap();
    let refused = alice.read(inode.no, 1 << 20, &mut read);
    assert!(matches!(refused, Err(Error::AccessDenied)), "{refused:?}");
    assert!(revoked(&shared) > before, "the disk itself refused");
    let again = alice.open(inode.no, Access::READ);
    assert!(matches!(again, Err(Error::AccessDenied)), "{again:?}");
    // A right that root restores works again.
    root.set_attributes(inode.no, &SetAttr::mode(0o644))
        .unwrap();
    assert_eq!(alice.read(inode.no, 1 << 20, &mut read).unwrap(), 1 << 20);
    assert!(read == bytes[1 << 20..2 << 20]);
}

#[test]
fn a_client_without_write_permission_gets_the_error_at_close_at_the_latest() {
    let shared = Shared::new();
    let (root, alice) = (shared.client("root", 0), shared.client("alice", 1000));
    let inode = made(&*root, b"f", 0o666, b"before");
    alice.open(inode.no, Access::WRITE).unwrap();
    alice.write(inode.no, 0, b"after!").unwrap();
    root.set_attributes(inode.no, &SetAttr::mode(0o600))
        .unwrap();
    let refused = alice.flush(inode.no);
    assert!(matches!(refused, Err(Error::AccessDenied)), "{refused:?}");
    alice.close(inode.no, Access::WRITE);
    root.open(inode.no, Access::READ).unwrap();
    let mut text = [0; 6];
    root.read(inode.no, 0, &mut text).unwrap();
    assert_eq!(&text, b"before");
}

/// Before such a write the kernel asks for a change of nothing, which only the owner may make: nobody else could write to the file.
#[test]
fn a_file_with_set_id_bits_is_written_to_by_all_who_may_and_loses_them() {
    let shared = Shared::with_long_leases();
    let options = mount::MountOptions {
        allow_other: true,
        ..Default::default()
    };
    let of = |name, uid| shared.mount_of(name, uid, &options);
    let (Some(root), Some(ada)) = (of("root", 0), of("ada", 1001)) else {
        return;
    };
    for mode in ["4777", "2777", "6666"] {
        root.ok(&format!("echo begun >f; chmod {mode} f; chmod 755 ."));
        ada.ok("setpriv --reuid=1001 --regid=1001 --clear-groups sh -c 'echo done >>f'");
        let found = ada.ok("cat f; stat -c %a f");
        assert_eq!(found, format!("begun\ndone\n{}\n", &mode[1..]), "{mode}");
    }
}

#[test]
fn an_immutable_file_is_refused_to_clients_that_had_it_open_too() {
    let shared = Shared::new();
    let (root, alice) = (shared.client("root", 0), shared.client("alice", 1000));
    let inode = made(&*root, b"f", 0o666, b"before");
    let flags = SetAttr::flags;
    let refused = |result: room::Result<()>| {
        assert!(matches!(result, Err(Error::NotPermitted(_))), "{result:?}");
    };
    let immutable = flags(FileFlags::IMMUTABLE);
    refused(alice.set_attributes(inode.no, &immutable).map(drop));
    alice.open(inode.no, Access::WRITE).unwrap();
    alice.write(inode.no, 0, b"after!").unwrap();
    let after = root.set_attributes(inode.no, &immutable).unwrap();
    assert_eq!(after.flags, FileFlags::IMMUTABLE);
    refused(alice.flush(inode.no));
    alice.close(inode.no, Access::WRITE);
    refused(alice.open(inode.no, Access::WRITE).map(drop));
    refused(root.open(inode.no, Access::WRITE).map(drop));
    refused(root.unlink(InodeNo::ROOT, b"f"));
    root.open(inode.no, Access::READ).unwrap();
    let mut text = [0; 6];
    root.read(inode.no, 0, &mut text).unwrap();
    assert_eq!(&text, b"before");
    root.close(inode.no, Access::READ);
    root.set_attributes(inode.no, &flags(FileFlags::NONE))
        .unwrap();
    root.unlink(InodeNo::ROOT, b"f").unwrap();
}

#[test]
fn who_was_removed_gets_nothing_any_more() {
    let shared = Shared::new();
    let root = shared.client("root", 0);
    // Far longer than anything here takes: only an answer ends a call before.
    let options = ClientOptions {
        timeout: LONG,
        ..shared.options()
    };
    let alice = shared.client_with(options, "alice", 1000);
    let inode = made(&*root, b"f", 0o644, &noise(2, 100_000));
    alice.open(inode.no, Access::READ).unwrap();
    let mut read = vec![0; 4096];
    alice.read(inode.no, 0, &mut read).unwrap();
    shared.server().remove_user("alice").unwrap();
    let refused = |asked: room::Result<()>| {
        assert!(matches!(asked, Err(room::Error::AccessDenied)), "{asked:?}");
    };
    refused(alice.read(inode.no, 4096, &mut read).map(drop));
    refused(alice.attributes(inode.no).map(drop));
}
