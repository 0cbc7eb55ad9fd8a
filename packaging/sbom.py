#!/usr/bin/env python3
"""Prints a software bill of materials (CycloneDX 1.6, JSON) of what the packages hold, from Cargo's own resolution.

The parts are all crates that are linked into the command, into the libraries that it carries, and into `libterrace.so`, and those
that build them; what only tests need is left out. Checksums are those of the lock file.
"""

import datetime
import json
import os
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What is handed out: the command, what it carries, and the library for other programs.
HANDED_OUT = [
    "terrace", "terrace-plugin", "terrace-exec", "terrace-allocations", "terrace-helper", "terrace-dropper",
    "terrace-sampler", "terrace-pages", "terrace-preload-arena",
]
TARGET = "x86_64-unknown-linux-gnu"


def metadata() -> dict:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def checksums() -> dict[tuple[str, str], str]:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}


def purl(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def licences(package: dict) -> list[dict]:
    # Old manifests say "MIT/Apache-2.0"; an expression of SPDX has a word.
    text = (package["license"] or "").replace("/", " OR ")
    return [{"expression": text}] if text else []


def component(package: dict, sums: dict[tuple[str, str], str]) -> dict:
    part = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
        "licenses": licences(package),
    }
    if package["description"]:
        part["description"] = " ".join(package["description"].split())
    if package["repository"]:
        part["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    sum_ = sums.get((package["name"], package["version"]))
    if sum_:
        part["hashes"] = [{"alg": "SHA-256", "content": sum_}]
    return part


def bill(data: dict, sums: dict[tuple[str, str], str], now: datetime.datetime) -> dict:
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    members = set(data["workspace_members"])
    roots = [id_ for id_ in members if packages[id_]["name"] in HANDED_OUT]
    missing = set(HANDED_OUT) - {packages[id_]["name"] for id_ in roots}
    if missing:
        sys.exit(f"packaging/sbom.py: not in the workspace: {', '.join(sorted(missing))}")

    def needs(id_: str) -> list[str]:
        kinds = lambda dep: {kind["kind"] for kind in dep["dep_kinds"]}  # noqa: E731
        return [dep["pkg"] for dep in nodes[id_]["deps"] if kinds(dep) - {"dev"}]

    reached, waiting = set(), list(roots)
    while waiting:
        id_ = waiting.pop()
        if id_ not in reached:
            reached.add(id_)
            waiting += needs(id_)
    ordered = sorted(reached, key=lambda id_: (packages[id_]["name"], packages[id_]["version"]))
    command = next(packages[id_] for id_ in roots if packages[id_]["name"] == "terrace")
    whole = component(command, sums) | {"type": "application", "bom-ref": "terrace-package"}
    parts = [component(packages[id_], sums) for id_ in ordered]
    depends = [{"ref": "terrace-package", "dependsOn": sorted(purl(packages[id_]) for id_ in roots)}]
    depends += [
        {"ref": purl(packages[id_]), "dependsOn": sorted({purl(packages[other]) for other in needs(id_)})}
        for id_ in ordered
    ]
    content = json.dumps([parts, depends])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # The same parts have the same number, so that a build can be repeated to the byte.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": whole},
        "components": parts,
        "dependencies": depends,
    }


def main() -> None:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    zone = datetime.timezone.utc
    now = datetime.datetime.fromtimestamp(int(epoch), zone) if epoch else datetime.datetime.now(zone)
    print(json.dumps(bill(metadata(), checksums(), now), indent=1))


if __name__ == "__main__":
    main()
