"""Keeps a moment of a room, and brings a file back from it: snapshots.py DIRECTORY"""

import sys

import strongroom

with strongroom.create(sys.argv[1], passphrase="correct horse battery") as room:
    letter = room / "letter.txt"
    letter.write_text("Dear Ada\n")
    room.create_snapshot("monday")
    letter.write_text("Dear Bob\n")

    with room.snapshot("monday") as past:
        print((past / "letter.txt").read_text(), end="")
    for change in room.diff("monday"):
        print(change.what, change.path)
    room.restore("monday", letter)
    print(letter.read_text(), end="")
    for snapshot in room.snapshots():
        print(snapshot.name, "alone holds", snapshot.exclusive, "bytes")
