"""Keeps automatic snapshots of a room: policy.py DIRECTORY"""

import sys

import strongroom

with strongroom.create(sys.argv[1], passphrase="correct horse battery") as room:
    room.set_snapshot_policy(strongroom.SnapshotPolicy(hourly=24, daily=7, weekly=5))
    (room / "letter.txt").write_text("Dear Ada\n")

    report = room.apply_snapshot_policy()  # now and then, and when the program's files belong together
    if report.created:
        print("created", report.created.name)
    for snapshot in report.deleted:
        print("deleted", snapshot.name)
    print("next at", report.next_due)
