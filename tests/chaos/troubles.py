"""What happens to the node while a boot runs: a disk that fills up, a clock that jumps, a database or a port that somebody else has.

Trap: such a trouble is usually mocked, and the mock knows only what its author knows. Rule: the disk is a real file system that takes no
more, the clock is the one that the processes read, the database is opened by another program, the port has a listener that answers.

A trouble may wrap commands (`wrap`), add variables (`environment`) and look at the store at another path (`seen`); `strike` makes it
happen, `clear` ends it (before anybody looks at the result), `close` removes what is left.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.chaos.schedules import Trouble

_PATIENCE_S = 30.0
_DISK_BYTES = 6 << 30
"""Sparse. More than the 2 GiB that must be free for a launch."""
_CLOCK_SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long long *offset;
__attribute__((constructor)) static void map(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    offset = found == MAP_FAILED ? 0 : found;
    if (file >= 0) close(file);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    now->tv_sec = t.tv_sec;
    now->tv_usec = t.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *now) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (now) *now = t.tv_sec;
    return t.tv_sec;
}
"""


class Calm:
    """No trouble at all, and the base of every one."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def seen(self) -> Path:
        """The store as this process sees it."""
        return self.home

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command as it must be started."""
        return list(command)

    def environment(self) -> dict[str, str]:
        """Variables of everything that is started."""
        return {}

    def strike(self) -> None:
        """Make it happen."""

    def clear(self) -> None:
        """End it."""

    def close(self) -> None:
        """Remove what is left."""


class FullDisk(Calm):
    """A file system of its own for the store, in a mount namespace that a sleeping process keeps."""

    def __init__(self, home: Path, left_bytes: int) -> None:
        super().__init__(home)
        self._left, image = left_bytes, home.with_name("disk.img")
        home.mkdir()
        with image.open("wb") as file:
            file.truncate(_DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", str(image)], check=True)
        mount = 'mount -o loop "$0" "$1" && echo mounted && exec sleep 3600'
        self._keeper = subprocess.Popen(["unshare", "--mount", "sh", "-c", mount, str(image), str(home)], stdout=subprocess.PIPE)
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != b"mounted\n":
            raise RuntimeError("no file system of its own: needs root and loop devices")
        self._filler = self.seen / "filler"

    @property
    def seen(self) -> Path:
        return Path(f"/proc/{self._keeper.pid}/root{self.home}")

    def wrap(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", "--mount", f"--target={self._keeper.pid}", *command]

    def strike(self) -> None:
        free = os.statvfs(self.seen)
        file = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            os.posix_fallocate(file, 0, max(4096, free.f_bavail * free.f_frsize - (1 << 20)))
            os.lseek(file, 0, os.SEEK_END)
            with suppress(OSError):  # until it takes no more
                while os.write(file, bytes(4096)):
                    pass
            os.ftruncate(file, max(0, os.fstat(file).st_size - self._left))
        finally:
            os.close(file)

    def clear(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()


class JumpingClock(Calm):
    """The wall clock of every process that is started jumps; the monotonic one goes on, as on a real machine."""

    def __init__(self, home: Path, library: Path, by_s: int) -> None:
        super().__init__(home)
        self._library, self._by_s, self._file = library, by_s, home.with_name("clock")
        self._file.write_bytes(struct.pack("q", 0))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def strike(self) -> None:
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
            page[:] = struct.pack("q", self._by_s)


def clock_library(folder: Path) -> Path:
    """The library that adds an offset to the wall clock, compiled once."""
    library, source = folder / "clock.so", folder / "clock.c"
    if not library.exists():
        source.write_text(_CLOCK_SOURCE)
        draft = folder / f"clock.{os.getpid()}.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(draft), str(source)], check=True)
        draft.replace(library)
    return library


_KEEPS_DATABASE = (
    "import sys, time, duckdb\n"
    "connection = duckdb.connect(sys.argv[1])\n"
    "print('kept', flush=True)\n"
    "sys.stdin.readline() if float(sys.argv[2]) > 500 else time.sleep(float(sys.argv[2]))\n"
)


class LockedDatabase(Calm):
    """Another program, which knows nothing of our locks, has the database open for writing."""

    def __init__(self, home: Path, seconds: float) -> None:
        super().__init__(home)
        home.mkdir()
        self._seconds = seconds
        self._keeper: subprocess.Popen[bytes] | None = None

    def strike(self) -> None:
        arguments = [sys.executable, "-c", _KEEPS_DATABASE, str(self.home / "sparkproof.duckdb"), str(self._seconds)]
        while self._keeper is None:
            keeper = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert keeper.stdout is not None
            if keeper.stdout.readline() == b"kept\n":  # else the runner had it just then
                self._keeper = keeper
            else:
                keeper.communicate()

    def clear(self) -> None:
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.communicate()

    close = clear


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Every page exists here."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "canary-dense"}]}')

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


class StolenPort(Calm):
    """Somebody else listens on the port that was chosen for the server, and answers."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._server: ThreadingHTTPServer | None = None

    def strike(self) -> None:
        (record,) = self.home.glob("boots/*/process.json")
        self._server = ThreadingHTTPServer(("127.0.0.1", json.loads(record.read_text())["port"]), _Answers)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        (record.parent / "port_is_taken").touch()

    def clear(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    close = clear


def trouble_at(home: Path, trouble: Trouble | None, tools: Path) -> Calm:
    """The trouble of a schedule, not yet struck."""
    if trouble is None:
        return Calm(home)
    if trouble.kind == "disk_full":
        return FullDisk(home, int(trouble.amount))
    if trouble.kind == "clock":
        return JumpingClock(home, clock_library(tools), int(trouble.amount))
    return LockedDatabase(home, trouble.amount) if trouble.kind == "database" else StolenPort(home)
