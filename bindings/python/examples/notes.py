"""The first five minutes of docs/embedding.md. Its argument is a directory that does not exist yet."""

import sys

import strongroom

location = sys.argv[1]

with strongroom.create(location, passphrase="correct horse battery") as room:
    (room / "diary").mkdir()
    (room / "diary" / "monday.txt").write_text("nobody else reads this\n")

try:
    strongroom.open(location, passphrase="wrong")
except strongroom.WrongKeyError as error:
    print("refused:", error.strerror)

with strongroom.open(location, passphrase="correct horse battery") as room:
    with room.transaction():
        with (room / "diary" / "monday.txt").open("a") as file:
            file.write("and this neither\n")
        (room / "index").write_text("monday\n")
    for path in room.root.rglob("*.txt"):
        print(path, path.stat().st_size, "bytes:")
        print(path.read_text(), end="")
