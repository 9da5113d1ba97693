"""A read-only registry on loopback that serves an OCI layout: `python3 -m suite.registry DIRECTORY PORT`.

containerd asks it as a mirror and says in `ns=` which registry an image name points to; what is not there is a 404.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from .layout import MANIFEST, REF_NAME


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(True)

    def do_HEAD(self):
        self.answer(False)

    def answer(self, whole):
        asked = urlsplit(self.path)
        registry = parse_qs(asked.query).get("ns", [""])[0]
        parts = asked.path.strip("/").split("/")
        if parts == ["v2"]:
            return self.send(b"{}", "application/json", "", whole)
        kind, reference = parts[-2:] if len(parts) > 3 else ("", "")
        digest = self.digest(registry, "/".join(parts[1:-2]), reference) if kind == "manifests" else reference
        blob = self.server.layout / "blobs" / "sha256" / digest.removeprefix("sha256:")
        if kind not in ("manifests", "blobs") or not digest.removeprefix("sha256:").isalnum() or not blob.is_file():
            return self.send_error(404)
        media = MANIFEST if kind == "manifests" else "application/octet-stream"
        self.send(blob.read_bytes(), media, digest, whole)

    def digest(self, registry, name, reference):
        """What a name and tag stand for."""
        if reference.startswith("sha256:"):
            return reference
        index = json.loads((self.server.layout / "index.json").read_text())
        known = {entry["annotations"][REF_NAME]: entry["digest"] for entry in index["manifests"]}
        return known.get(f"{registry}/{name}:{reference}", "")

    def send(self, body, media, digest, whole):
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if whole:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    server.layout = Path(sys.argv[1])
    server.serve_forever()
