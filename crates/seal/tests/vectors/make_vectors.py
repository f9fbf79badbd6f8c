#!/usr/bin/env python3
"""Works out, independently of the Rust code, what every key derivation and one sealed unit of each suite must be.

Written from the layouts in the documentation alone. Needs the packages `cryptography` and `argon2-cffi`. Run it as

    python3 make_vectors.py > vectors.json

The inputs are fixed, so the output is always the same. XChaCha20-Poly1305 is built here from its definition
(draft-irtf-cfrg-xchacha): HChaCha20, then ChaCha20-Poly1305.
"""

import hashlib
import hmac
import json
import struct

import argon2.low_level
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

ROOM = bytes(range(0x10, 0x20))
MASTER = bytes(range(0x40, 0x60))
OLD_MASTER = bytes(range(0x60, 0x80))
SALT = bytes(range(0x80, 0xA0))
NONCE = bytes(range(0xA0, 0xB8))
BLOCK = 0x0102030405
NONCE_PART = bytes(range(0xF1, 0xF5))
UNIT = bytes((7 * i + i // 256) % 256 for i in range(16384))
COST = {"memory_kib": 8192, "passes": 2, "lanes": 2}
PASSPHRASE = "correct horse battery staple ✓".encode()
KEY_FILE = bytes(range(256))
RAW_KEY = bytes(range(0xC0, 0xE0))


def hkdf(material, salt, info):
    """RFC 5869 with SHA-256, 32 bytes: one block of output."""
    prk = hmac.new(salt if salt else bytes(32), material, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


def derive(material, salt, purpose, context=b""):
    return hkdf(material, salt, b"strongroom v1 " + purpose.encode() + b"\x00" + ROOM + context)


def rotl(value, count):
    return ((value << count) | (value >> (32 - count))) & 0xFFFFFFFF


def hchacha20(key, nonce16):
    state = list(struct.unpack("<16I", b"expand 32-byte k" + key + nonce16))

    def quarter(a, b, c, d):
        for x, y, z, count in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            state[z] = rotl(state[z] ^ state[x], count)

    for _ in range(10):
        quarter(0, 4, 8, 12), quarter(1, 5, 9, 13), quarter(2, 6, 10, 14), quarter(3, 7, 11, 15)
        quarter(0, 5, 10, 15), quarter(1, 6, 11, 12), quarter(2, 7, 8, 13), quarter(3, 4, 9, 14)
    return struct.pack("<8I", *(state[0:4] + state[12:16]))


def xchacha(key, nonce, text, data):
    return ChaCha20Poly1305(hchacha20(key, nonce[:16])).encrypt(bytes(4) + nonce[16:], text, data)


# draft-irtf-cfrg-xchacha, section 2.2.1: this file's HChaCha20 is checked before it checks others.
assert hchacha20(
    bytes(range(32)), bytes.fromhex("000000090000004a0000000031415927")
).hex() == "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"


def argon2id(secret):
    return argon2.low_level.hash_secret_raw(
        secret, SALT, COST["passes"], COST["memory_kib"], COST["lanes"], 32, argon2.low_level.Type.ID, 0x13
    )


def slot(number, kind, kind_id, purpose, material, cost):
    key = derive(material, SALT, purpose)
    numbers = (cost["memory_kib"], cost["passes"], cost["lanes"]) if cost else (0, 0, 0)
    data = b"strongroom v1 slot\x00" + ROOM + struct.pack(">IBIII", number, kind_id, *numbers) + SALT
    return {
        "id": number,
        "kind": kind,
        "material": material.hex(),
        "wrapping_key": key.hex(),
        "associated_data": data.hex(),
        "wrapped": xchacha(key, NONCE, MASTER, data).hex(),
    }


def unit(name, suite_id, cipher, nonce_part):
    key = derive(derive(MASTER, b"", "data"), SALT, "segment", bytes([suite_id]))
    sealed = cipher(key).encrypt(nonce_part + struct.pack(">Q", BLOCK), UNIT, None)
    return {
        "suite": name,
        "nonce_part": nonce_part.hex(),
        "key": key.hex(),
        "tag": sealed[-16:].hex(),
        "sealed_start": sealed[:64].hex(),
        "sealed_sha256": hashlib.sha256(sealed[:-16]).hexdigest(),
    }


def blake3_keyed(key, text):
    """BLAKE3's keyed hash of at most 64 bytes: one compression (BLAKE3, section 2.2 and 2.3)."""
    initial = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A]
    flags = 1 | 2 | 8 | 16  # the chunk's start and end, the root, keyed
    words = list(struct.unpack("<16I", text.ljust(64, b"\0")))
    chaining = list(struct.unpack("<8I", key))
    state = chaining + initial + [0, 0, len(text), flags]

    def rotate(x, n):
        return (x >> n | x << 32 - n) & 0xFFFFFFFF

    def mix(a, b, c, d, x, y):
        for word, (one, two) in ((x, (16, 12)), (y, (8, 7))):
            state[a] = (state[a] + state[b] + word) & 0xFFFFFFFF
            state[d] = rotate(state[d] ^ state[a], one)
            state[c] = (state[c] + state[d]) & 0xFFFFFFFF
            state[b] = rotate(state[b] ^ state[c], two)

    for _ in range(7):
        columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
        diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
        for at, places in enumerate(columns + diagonals):
            mix(*places, words[2 * at], words[2 * at + 1])
        words = [words[i] for i in (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)]
    return struct.pack("<8I", *(state[i] ^ state[i + 8] for i in range(8)))


def position_key(suite_id, first, height):
    key = derive(derive(MASTER, b"", "data"), SALT, "segment positions", bytes([suite_id]))
    for bit in range(13, height - 1, -1):
        key = blake3_keyed(key, b"strongroom v1 position\x00" + bytes([first >> bit & 1]))
    return {"suite": {1: "aes-256-gcm", 2: "chacha20-poly1305"}[suite_id], "first": first, "height": height, "key": key.hex()}


POSITIONS = [position_key(suite, *node) for suite in (1, 2) for node in ((8192, 13), (1024, 10), (10843, 0))]

header_key = derive(MASTER, b"", "header")
segment_header_key = derive(MASTER, b"", "segment header")
page_digest_key = derive(MASTER, b"", "page digest")
previous_key = derive(MASTER, b"", "previous master")
previous_data = b"strongroom v1 previous master\x00" + ROOM + struct.pack(">I", 7)

slots = [
    slot(0, "passphrase", 1, "slot passphrase", argon2id(PASSPHRASE), COST),
    slot(1, "key-file", 2, "slot key file", argon2id(KEY_FILE), COST),
    slot(2, "raw-key", 3, "slot raw key", RAW_KEY, None),
]

# A whole header, so that reading, unlocking and verifying can be held against bytes this program never saw.
body = {
    "format": 1,
    "features": [],
    "room": ROOM.hex(),
    "suite": "aes-256-gcm",
    "unit_len": 16384,
    "created_unix_s": 1700000000,
    "revision": 9,
    "epoch": 8,
    "slots": [
        {
            "id": s["id"],
            "kind": s["kind"],
            "label": "slot %d" % s["id"],
            "created_unix_s": 1700000001,
            "salt": SALT.hex(),
            **({"argon2id": COST} if s["kind"] != "raw-key" else {}),
            "nonce": NONCE.hex(),
            "wrapped": s["wrapped"],
        }
        for s in slots
    ],
    "previous": {
        "epoch": 7,
        "nonce": NONCE.hex(),
        "wrapped": xchacha(previous_key, NONCE, OLD_MASTER, previous_data).hex(),
    },
}
body_text = json.dumps(body)
mac = hmac.new(header_key, body_text.encode(), hashlib.sha256).hexdigest()

print(
    json.dumps(
        {
            "room": ROOM.hex(),
            "master": MASTER.hex(),
            "old_master": OLD_MASTER.hex(),
            "salt": SALT.hex(),
            "passphrase": PASSPHRASE.decode(),
            "key_file": KEY_FILE.hex(),
            "raw_key": RAW_KEY.hex(),
            "cost": COST,
            "header_mac": hmac.new(header_key, b"a header", hashlib.sha256).hexdigest(),
            "segment_header_mac": hmac.new(segment_header_key, b"a segment header", hashlib.sha256).hexdigest(),
            "page_digest_mac": hmac.new(page_digest_key, b"a table", hashlib.sha256).hexdigest(),
            "catalog_key": derive(MASTER, b"", "catalog").hex(),
            "data_key": derive(MASTER, b"", "data").hex(),
            "block": BLOCK,
            "units": [
                unit(name, number, cipher, part)
                for part in (bytes(4), NONCE_PART)
                for name, number, cipher in (
                    ("aes-256-gcm", 1, AESGCM),
                    ("chacha20-poly1305", 2, ChaCha20Poly1305),
                )
            ],
            "positions": POSITIONS,
            "slots": slots,
            "previous_epoch": 7,
            "header": '{"mac": "%s", "body": %s}' % (mac, body_text),
        },
        indent=1,
    )
)
