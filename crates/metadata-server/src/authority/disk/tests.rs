use room::{InodeNo, NewCredential, NewRoom, Room};

use super::*;
use crate::authority::{Authority, TIMEOUT, Timing};
use crate::fence::{InDirectory, RoomFiles as _, Turn};

fn put(state: &mut State, id: u32) {
    let capability = Capability {
        disk: netdisk::DiskId([0; 16]),
        client: ClientId(1),
        group: GroupId(1),
        id: CapabilityId(id),
        mode: Mode::Read,
        expires: u64::MAX,
        nonce: [0; 16],
        extents: vec![BlockExtent {
            start: u64::from(id),
            blocks: 1,
        }],
    };
    state.issued.put(Entry {
        session: SessionId(1),
        purpose: Purpose::Read(InodeNo(u64::from(id))),
        ticket: DiskKey::new([1; 32]).ticket(capability),
    });
}

#[test]
fn a_session_has_a_bounded_number_of_capabilities_and_the_oldest_go_first() {
    let mut state = State::default();
    let begun = Instant::now();
    let mut revoked = 0;
    for id in 0..20_000 {
        let now = begun + Duration::from_millis(u64::from(id));
        state.admit(SessionId(1), now).unwrap();
        put(&mut state, id);
        // As a disk that answers does.
        for id in std::mem::take(&mut state.pending) {
            assert_eq!(id, revoked, "an older one is still there");
            revoked += 1;
            state.issued.remove(id);
        }
        assert!(state.issued.len() <= LIVE_MAX);
    }
    // One that does not.
    let issued = (20_000..40_000)
        .filter(|id| {
            let now = begun + Duration::from_millis(u64::from(*id));
            let may = state.admit(SessionId(1), now).is_ok();
            if may {
                put(&mut state, *id);
            }
            may
        })
        .count();
    assert!(issued <= LIVE_MAX + REVOKED_AT_ONCE, "{issued}");
    assert_eq!(state.issued.len(), 2 * LIVE_MAX);
    assert!(state.pending.len() >= LIVE_MAX / 2);
    state
        .admit(SessionId(2), begun + Duration::from_secs(60))
        .unwrap();
}

/// A server with a shorter lifetime took what an earlier one had given for over, and called revocations done at a disk that
/// it had not reached.
#[test]
fn what_earlier_servers_gave_is_good_for_as_long_as_they_gave_it() {
    let dir = tempfile::tempdir().unwrap();
    let credential = NewCredential::RawKey(vec![7; 32].into());
    let room = Room::create(dir.path(), NewRoom::with_credential(credential)).unwrap();
    let begun = |lifetime: u64| {
        let timing = Timing {
            capability_lifetime: Duration::from_secs(lifetime),
            ..Timing::default()
        };
        let fence = InDirectory.open(dir.path(), &Turn::NOW).unwrap().fence;
        Authority::new(&room, timing, fence).unwrap()
    };
    let longest = |authority: &Authority| authority.lifetimes.longest().as_secs();
    assert_eq!(longest(&begun(0)), 0);
    begun(3600);
    let begun_at = Instant::now();
    let away = begun(0);
    let keys = netdisk::KeyFile::generate().unwrap();
    let disk = crate::enrol::Disk {
        name: "away".into(),
        address: DiskAddress {
            id: keys.id,
            address: "127.0.0.1:1".into(),
            protection: netdisk::Protection::Private,
            certificate: Some(keys.certificate_hash),
        },
        key: keys.key,
    };
    let disk = Disk::new(
        (disk, [0; 16]),
        (Before::Earlier, away.lifetimes.longest()),
        TIMEOUT,
        away.lifetimes.present,
        away.tally.clone(),
        away.fence.clone(),
    );
    assert!(disk.unknown_until > begun_at + Duration::from_secs(3600));
    away.disks
        .write()
        .insert(disk.address.id, std::sync::Arc::new(disk));
    away.refill(&room).unwrap();
    assert_eq!(longest(&away), 3600);
    let all_there = begun(0);
    all_there.refill(&room).unwrap();
    assert_eq!((longest(&all_there), longest(&begun(0))), (0, 0));
}
