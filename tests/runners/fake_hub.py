"""A hub on loopback that speaks as much of the protocol as huggingface_hub needs: model info with sizes, file tree, resolve with redirect.

Small files are answered by `resolve` itself, large ones redirect to another path, as on the real hub (LFS). Everything asked is kept.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "maker/model"


@dataclass
class FakeHub:
    """`files` by name; `gated` refuses reading; `lost` files are listed but cannot be fetched; a file named in `cut` breaks off after
    `cut_at` bytes, once per entry; `announced` are sizes that differ from the truth."""

    files: dict[str, bytes]
    large: frozenset[str] = frozenset()
    gated: bool = False
    announced: dict[str, int] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    cut_at: int = 1000
    lost: set[str] = field(default_factory=set)
    ranges: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    commit: str = COMMIT
    """What the branch is now."""
    authorizations: set[str] = field(default_factory=set)
    url: str = ""

    def size(self, name: str) -> int:
        return self.announced.get(name, len(self.files[name]))

    def etag(self, name: str) -> str:
        return hashlib.sha256(self.files[name]).hexdigest()


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Run the hub on a free loopback port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def do_HEAD(self) -> None:
            self._answer(head=True)

        def do_GET(self) -> None:
            self._answer(head=False)

        def _answer(self, head: bool) -> None:
            path = urlsplit(self.path).path
            hub.asked.append(f"{self.command} {path}")
            hub.authorizations.add(self.headers.get("Authorization", ""))
            if path.startswith(f"/api/models/{REPO}/tree/"):
                return self._json([self._tree_entry(name) for name in hub.files])
            if path in (f"/api/models/{REPO}", f"/api/models/{REPO}/revision/main", f"/api/models/{REPO}/revision/{hub.commit}"):
                return self._info()
            if path.startswith(f"/api/models/{REPO}/revision/"):
                return self._refuse(404, "RevisionNotFound")
            if path.startswith(f"/{REPO}/resolve/{hub.commit}/"):
                return self._resolve(path.removeprefix(f"/{REPO}/resolve/{hub.commit}/"), head)
            if path.startswith("/stored/"):
                return self._content(path.removeprefix("/stored/"), head)
            return self._refuse(404, "RepoNotFound")

        def _info(self) -> None:
            if hub.gated:
                return self._refuse(403, "GatedRepo")
            siblings = [{"rfilename": name, "size": hub.size(name), "blobId": hub.etag(name)[:40]} for name in hub.files]
            return self._json(
                {"id": REPO, "sha": hub.commit, "siblings": siblings, "tags": [], "downloads": 0, "likes": 0, "private": False}
            )

        def _tree_entry(self, name: str) -> dict[str, object]:
            entry: dict[str, object] = {"type": "file", "path": name, "oid": hub.etag(name)[:40], "size": hub.size(name)}
            if name in hub.large:
                entry["lfs"] = {"oid": hub.etag(name), "size": hub.size(name), "pointerSize": 134}
            return entry

        def _resolve(self, name: str, head: bool) -> None:
            if name not in hub.files:
                return self._refuse(404, "EntryNotFound")
            if name not in hub.large:
                return self._content(name, head)
            self.send_response(302)
            self.send_header("Location", f"{hub.url}/stored/{name}")
            self.send_header("X-Repo-Commit", hub.commit)
            self.send_header("X-Linked-Etag", f'"{hub.etag(name)}"')
            self.send_header("X-Linked-Size", str(hub.size(name)))
            self.send_header("Content-Length", "0")
            return self.end_headers()

        def _content(self, name: str, head: bool) -> None:
            if name in hub.lost:
                return self._refuse(404, "EntryNotFound")
            data = hub.files[name]
            if "Range" in self.headers:
                hub.ranges.append(self.headers["Range"])
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            self.send_response(206 if start else 200)
            self.send_header("ETag", f'"{hub.etag(name)}"')
            self.send_header("X-Repo-Commit", hub.commit)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            if head:
                return None
            breaks_off = name in hub.cut
            if breaks_off:
                hub.cut.remove(name)
                self.close_connection = True
            self.wfile.write(data[start : start + hub.cut_at] if breaks_off else data[start:])
            return None

        def _json(self, value: object) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler
