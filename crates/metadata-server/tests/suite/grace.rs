//! After a start of the server: who may claim the locks that were held before, and who waits for that.

use crate::common;
use std::time::Duration;

use crate::common::{LONG, Raw, World, lock, posix, until};
use metadata_proto::rpc::*;
use room::{FileKind, InodeNo, Lock, LockKind, LockOwner, LockTable};

const TABLE: LockTable = LockTable::Posix;
const OWNER: LockOwner = LockOwner(1);

fn exclusive() -> Lock {
    lock(LockKind::Exclusive, 0, 9)
}

fn set(client: &Raw, no: InodeNo, lock: Lock) -> Reply<()> {
    client
        .ask(|c, x, s| async move { c.set_lock(x, s, no, TABLE, OWNER, lock, false).await })
        .unwrap()
}

fn test(client: &Raw, no: InodeNo, lock: Lock) -> Reply<Option<Lock>> {
    client
        .ask(|c, x, s| async move { c.test_lock(x, s, no, TABLE, OWNER, lock).await })
        .unwrap()
}

/// Claims the exclusive lock, as who had these sessions.
fn claims(client: &Raw, no: InodeNo, former: &[SessionId]) -> bool {
    let former = former.to_vec();
    let claim = LockClaim {
        no,
        table: TABLE,
        owner: OWNER,
        lock: exclusive(),
    };
    let has = client
        .ask(|c, x, s| async move { c.reclaim_locks(x, s, former, vec![claim]).await })
        .unwrap();
    has.unwrap()[0]
}

/// Two clients, and a file that both have open.
fn two(lease: Duration) -> (World, Raw, Raw, InodeNo) {
    let world = World::with_lease(1, lease);
    let one = world.client("one", 0, &[0]);
    let other = world.client("other", 0, &[0]);
    let no = one
        .make(common::ROOT, "f", FileKind::Regular, 0o644)
        .unwrap()
        .no;
    one.open(no, true, true).unwrap();
    other.open(no, true, true).unwrap();
    (world, one, other, no)
}

/// Another session of a client, with the file open.
fn again(world: &World, client: &Raw, no: InodeNo) -> Raw {
    let again = Raw::connect(world, client.identity.clone(), None).unwrap();
    again.open(no, true, true).unwrap();
    again
}

/// Waits until a client has the exclusive lock, and has it released.
fn takes_and_releases(world: &World, mut client: Raw, no: InodeNo) {
    until("the lock is free", || match set(&client, no, exclusive()) {
        Err(Refusal::NoSession) => {
            client = again(world, &client, no);
            false
        }
        other => other.is_ok(),
    });
    // Or else it ends with the session.
    let _ = set(&client, no, lock(LockKind::Unlock, 0, 9));
}

fn restart(world: &mut World) {
    world.stop();
    world.start();
}

#[test]
fn nobody_gets_a_lock_before_those_who_held_some_have_claimed_them() {
    let (mut world, one, other, no) = two(LONG);
    set(&one, no, exclusive()).unwrap();
    restart(&mut world);
    let later = Refusal::NotNow(Delay::Reclaiming);
    let rival = again(&world, &other, no);
    // Not even where nobody is known to have it.
    let elsewhere = lock(LockKind::Shared, 20, 29);
    assert_eq!(set(&rival, no, elsewhere).unwrap_err(), later);
    assert_eq!(test(&rival, no, exclusive()).unwrap_err(), later);
    // One who held none claims none, and does not end the wait for the one who did.
    assert!(!claims(&rival, no, &[other.id()]));
    assert_eq!(set(&rival, no, elsewhere).unwrap_err(), later);

    let holder = again(&world, &one, no);
    assert!(claims(&holder, no, &[one.id()]));
    // The answer may have been lost.
    assert!(claims(&holder, no, &[one.id()]));
    assert_eq!(posix(set(&rival, no, exclusive())), Posix::WouldBlock);
    assert!(!claims(&rival, no, &[one.id()]));
    set(&rival, no, elsewhere).unwrap();
    set(&holder, no, lock(LockKind::Unlock, 0, 9)).unwrap();
    set(&rival, no, exclusive()).unwrap();
}

#[test]
fn without_locks_nobody_waits() {
    let (mut world, one, _, no) = two(LONG);
    // Nor for one who said goodbye.
    set(&one, no, exclusive()).unwrap();
    one.ask(|c, x, s| async move { c.bye(x, s).await })
        .unwrap()
        .unwrap();
    restart(&mut world);
    set(&again(&world, &one, no), no, exclusive()).unwrap();
}

#[test]
fn a_session_that_ended_before_its_server_did_claims_nothing() {
    let (mut world, one, other, no) = two(Duration::from_secs(2));
    set(&one, no, exclusive()).unwrap();
    // The other one goes on, and gets the lock when the idle one's lease is over.
    takes_and_releases(&world, other, no);
    restart(&mut world);
    assert!(!claims(&again(&world, &one, no), no, &[one.id()]));
}

#[test]
fn what_was_not_claimed_in_time_is_not_claimed_from_a_later_server_either() {
    let (mut world, one, other, no) = two(Duration::from_secs(2));
    set(&one, no, exclusive()).unwrap();
    restart(&mut world);
    let rival = again(&world, &other, no);
    takes_and_releases(&world, rival, no);
    restart(&mut world);
    assert!(!claims(&again(&world, &one, no), no, &[one.id()]));
}

#[test]
fn locks_are_claimed_after_several_restarts_too() {
    let (mut world, one, _, no) = two(LONG);
    set(&one, no, exclusive()).unwrap();
    restart(&mut world);
    // It had no time to claim from this one.
    restart(&mut world);
    let second = again(&world, &one, no);
    assert!(claims(&second, no, &[one.id()]));
    // It does not know that: the server ends before it answers.
    restart(&mut world);
    let third = again(&world, &one, no);
    assert!(claims(&third, no, &[one.id(), second.id()]));
    assert_eq!(
        posix(set(&again(&world, &one, no), no, exclusive())),
        Posix::WouldBlock
    );
}

#[test]
fn a_claim_that_cannot_be_is_refused() {
    let (mut world, one, other, no) = two(LONG);
    set(&one, no, exclusive()).unwrap();
    set(&other, no, lock(LockKind::Exclusive, 20, 29)).unwrap();
    restart(&mut world);
    // What another one claimed first, in a file that is not open, and a range that is none.
    assert!(claims(&again(&world, &one, no), no, &[one.id()]));
    let liar = Raw::connect(&world, other.identity.clone(), None).unwrap();
    assert!(!claims(&liar, no, &[other.id()]));
    let many = vec![other.id(); FORMER_MAX + 1];
    let refused = liar
        .ask(|c, x, s| async move { c.reclaim_locks(x, s, many, Vec::new()).await })
        .unwrap();
    assert_eq!(posix(refused), Posix::InvalidArgument);
    let claim = LockClaim {
        no,
        table: TABLE,
        owner: OWNER,
        lock: lock(LockKind::Exclusive, 9, 0),
    };
    let has = liar
        .ask(|c, x, s| async move { c.reclaim_locks(x, s, Vec::new(), vec![claim]).await })
        .unwrap();
    assert_eq!(has.unwrap(), [false]);
}
