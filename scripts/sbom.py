#!/usr/bin/env python3
"""Writes what the three programs and two bindings are made of, as CycloneDX 1.5: every crate from the lock file, and the system's libcrypto.

    scripts/sbom.py VERSION DIRECTORY

DIRECTORY/NAME-VERSION.cdx.json for strongroom, strongroom-bench, strongroom-bucket, strongroom-python and strongroom-java. They name no path of
this machine, and are the same for the same sources, system library and SOURCE_DATE_EPOCH (seconds).
"""

import json
import os
import pathlib
import subprocess
import sys

CARGO_CYCLONEDX = "0.5.9"
ROOT = pathlib.Path(__file__).resolve().parent.parent
# What cargo-cyclonedx writes of each.
WRITTEN = {
    "strongroom": "crates/cli/strongroom_bin",
    "strongroom-bench": "crates/cli/strongroom-bench_bin",
    "strongroom-bucket": "crates/cli/strongroom-bucket_bin",
    "strongroom-python": "bindings/python/_strongroom_cdylib",
    "strongroom-java": "bindings/java/native/strongroom_java_cdylib",
}


def libcrypto():
    """SQLCipher's ciphers: no crate, so cargo does not know of it. In the static programs it is inside, the others load it."""
    version = subprocess.run(["pkg-config", "--modversion", "libcrypto"], capture_output=True, text=True, check=True).stdout.strip()
    return {"type": "library", "bom-ref": "libcrypto", "name": "openssl", "version": version, "scope": "required",
            "description": "libcrypto, from the system that this was built on", "licenses": [{"expression": "Apache-2.0"}],
            "purl": f"pkg:generic/openssl@{version}"}


def manifests():
    said = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"], cwd=ROOT, capture_output=True, check=True)
    return [pathlib.Path(package["manifest_path"]) for package in json.loads(said.stdout)["packages"]]


def main(version, directory):
    subprocess.run(["bash", "-euc", '. scripts/lib.sh; cargo_tool cargo-cyclonedx "$1"; rm -rf "$TOOLS/build"', "sbom", CARGO_CYCLONEDX],
                   cwd=ROOT, check=True)
    tools = ROOT / "target/tools/bin"
    # It writes beside the manifest of every crate, whichever it is asked for.
    subprocess.run(["cargo", "cyclonedx", "--manifest-path", "crates/cli/Cargo.toml", "--format", "json", "--describe", "binaries",
                    "--spec-version", "1.5", "--no-build-deps", "-qq"],
                   cwd=ROOT, check=True, env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})
    for name, written in WRITTEN.items():
        text = (ROOT / f"{written}.cdx.json").read_text()
        bill = json.loads(text.replace(f"path+file://{ROOT}", "path+file:///strongroom"))
        bill["components"].append(libcrypto())
        for node in bill["dependencies"]:
            if "#libsqlite3-sys@" in node["ref"] or "#openssl-sys@" in node["ref"]:
                node.setdefault("dependsOn", []).append("libcrypto")
        (pathlib.Path(directory) / f"{name}-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    for manifest in manifests():
        for left in manifest.parent.glob("*.cdx.json"):
            left.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
