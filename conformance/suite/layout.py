"""OCI images: layers are uncompressed archives, an image is a list of them and how it is started."""

import hashlib
import io
import json
import os
import platform
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
REF_NAME = "org.opencontainers.image.ref.name"
CONTAINERD_NAME = "io.containerd.image.name"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@dataclass
class File:
    """A file of a layer: from the host, or from text; or a link."""

    path: str
    source: Path | None = None
    text: str = ""
    mode: int = 0o644
    link: str = ""


@dataclass
class Start:
    """How containers of an image start."""

    entrypoint: list = field(default_factory=list)
    command: list = field(default_factory=list)
    user: str = ""
    workdir: str = ""


def layer(files, path):
    """Writes a layer; the same files give the same bytes."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for directory in sorted({str(parent) for file in files for parent in Path(file.path).parents} - {".", "/"}):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            archive.addfile(entry)
        for file in files:
            add(archive, file)
    return path


def add(archive, file):
    """Adds one file; a path that ends with a slash is an empty directory."""
    entry = tarfile.TarInfo(file.path.rstrip("/"))
    entry.mode = file.mode
    if file.link:
        entry.type, entry.linkname = tarfile.SYMTYPE, file.link
        archive.addfile(entry)
    elif file.path.endswith("/"):
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        contents = file.source.read_bytes() if file.source else file.text.encode()
        entry.size = len(contents)
        archive.addfile(entry, io.BytesIO(contents))


class Layout:
    """A directory of blobs and an index of names, written anew each time."""

    def __init__(self, directory):
        self.directory = directory
        self.blobs = directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.entries = []
        self.known = {}

    def image(self, name, layers, start):
        """Adds an image."""
        digests = [self.file(layer) for layer in layers]
        config = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {
                "Entrypoint": start.entrypoint, "Cmd": start.command, "User": start.user,
                "WorkingDir": start.workdir, "Env": [PATH],
            },
            "rootfs": {"type": "layers", "diff_ids": [digest for digest, _ in digests]},
        }
        digest, size = self.json(config)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest, "size": size},
            "layers": [{"mediaType": LAYER, "digest": digest, "size": size} for digest, size in digests],
        }
        digest, size = self.json(manifest)
        names = {REF_NAME: name, CONTAINERD_NAME: name}
        self.entries.append({"mediaType": MANIFEST, "digest": digest, "size": size, "annotations": names})

    def finish(self):
        """Writes the index, and forgets blobs of images that are no more."""
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": self.entries}
        (self.directory / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        (self.directory / "index.json").write_text(json.dumps(index))
        for blob in self.blobs.iterdir():
            if blob.name not in self.known:
                blob.unlink()

    def json(self, value):
        """Adds a document; returns its digest and size."""
        contents = json.dumps(value, sort_keys=True).encode()
        name = hashlib.sha256(contents).hexdigest()
        (self.blobs / name).write_bytes(contents)
        return self.keep(name, len(contents))

    def file(self, path):
        """Adds a layer by a hard link; returns its digest and size."""
        name = digest_of(path)
        blob = self.blobs / name
        if not blob.exists():
            link_or_copy(path, blob)
        return self.keep(name, path.stat().st_size)

    def keep(self, name, size):
        self.known[name] = size
        return f"sha256:{name}", size


def digest_of(path):
    """The digest of a file, kept beside it until the file changes."""
    kept, stamp = path.with_suffix(".sha256"), path.stat().st_mtime_ns
    if kept.exists() and kept.read_text().startswith(f"{stamp} "):
        return kept.read_text().split()[1]
    with open(path, "rb") as file:
        name = hashlib.file_digest(file, "sha256").hexdigest()
    kept.write_text(f"{stamp} {name}")
    return name


def link_or_copy(source, destination):
    """A second name for a file, or a copy where that cannot be."""
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


def archive(directory, output):
    """Writes the layout as an archive that `ctr images import` reads."""
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as archive_file:
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            archive_file.add(path, str(path.relative_to(directory)))
