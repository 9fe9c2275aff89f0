"""Send hostile requests to `climb serve`: host names, methods, paths, tokens, garbage, slow and many connections.

    python tests/soak/server.py                  # 3,000 requests, 15 of them waves of connections
    python tests/soak/server.py --trials 200

One server has a token and one has none. Around the served folder are files with a secret. A trial is one request, which
must get the right status and must not reveal a secret or the token; or one wave of idle, slow and stalled connections,
during which a client gets its page. After each trial the server must still be alive.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from damage import config_of
from trials import Trials, parse_arguments

from climb.session import execute
from climb.settings.config import Execution

TOKEN, SECRET = "a-token-of-some-length", "the-secret-of-this-machine"
SECONDS = 60  # longest wait for an answer: other processes may slow this machine down
WAVE = 200  # requests between two waves
MOST_GROWTH = 100 * 2**20  # bytes of a server over all trials
LOCAL = ("127.0.0.1", "localhost", "[::1]", "127.8.8.8", "127.0.0.1:99", "LOCALHOST", "localhost\t")
HOSTS = (
    "example.com", "127.0.0.1.example.com", "localhost.example.com", "0.0.0.0", "[::]", "[::ffff:10.0.0.1]", "10.0.0.1",
    "127.0.0.1@example.com", "localhost@evil", "evil#localhost", "", " ", "[", "[::1", "2130706434", "0x7f000001",
    "127.1.", "\xe9vil", "a" * 5000, "localhost, evil", "169.254.169.254", "%6c%6f%63alhost",
)  # fmt: skip
METHODS = (
    "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "MKCOL", "get", "Get", "SEARCH",
    "LOCK", "PURGE", "x", "GET\x00", "GETGET", "HEADS",
)  # fmt: skip
PIECES = (
    "..", "%2e%2e", ".%2e", "%252e%252e", "..%2f", "..%5c", "..\\", ".", "", "%00", "%c0%ae%c0%ae", "....", "~",
    "secret", "secret.txt", "etc", "passwd", "out", "link", "linked", ".lock", "runs", "file", "api", "live", "memory",
    "page.js", "run", "config.json", "checkpoint", "state.safetensors", "result.json", "%2f", "\xe9", "%", "%zz", ";x",
    "a" * 300,
)  # fmt: skip


@dataclass
class Answer:
    """What a server sends back; no status if it closes the connection without an answer."""

    status: int | None = None
    head: str = ""
    body: bytes = b""


@dataclass
class Server:
    """`climb serve` in a process of its own."""

    folder: Path
    log: Path
    token: str | None = None
    port: int = 0
    process: subprocess.Popen[str] = field(init=False)

    @contextmanager
    def running(self) -> Iterator[Server]:
        code = "import sys; from climb.cli import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", code, "serve", str(self.folder), "--port", "0"]
        environment = {**os.environ, **({"CLIMB_TOKEN": self.token} if self.token else {})}
        with (
            open(self.log, "w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as self.process,
        ):
            assert self.process.stdout is not None
            self.port = int(re.findall(r":(\d+)/", self.process.stdout.readline())[0])
            try:
                yield self
            finally:
                self.process.terminate()

    def ask(self, request: bytes, *, end: bool = False) -> Answer:
        """Send a request as it is, and read the answer to its end. ``end`` tells the server that no more follows."""
        with self.connection() as connection:
            received = b""
            with suppress(ConnectionError):
                connection.sendall(request)
                if end:
                    connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(2**16):
                    received += part
        head, _, body = received.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3})", head)
        return Answer(int(status[1]) if status else None, head.decode("latin-1"), body)

    def get(self, path: str = "/", *, method: str = "GET", host: str = "127.0.0.1", **headers: str) -> Answer:
        """One request with headers."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {text}" for name, text in headers.items())]
        return self.ask("\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "surrogateescape"))

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def reveals(answer: Answer) -> str:
    """What an answer must not contain; "" if it does not."""
    text = answer.head + answer.body.decode("latin-1")
    return next((f"reveals {word}" for word in (SECRET, TOKEN, "Traceback") if word in text), "")


def expected(answer: Answer, statuses: tuple[int | None, ...]) -> str:
    """What is wrong with an answer; "" if nothing is."""
    return reveals(answer) or ("" if answer.status in statuses else f"status {answer.status} is none of {statuses}")


# -- kinds of trials: each returns what was sent, and what is wrong ----------------------------------------------------

Trial = Callable[[Server, Server, random.Random], tuple[str, str]]


def host_name(plain: Server, guarded: Server, dice: random.Random) -> tuple[str, str]:
    """Without a token, only requests for the local host are answered, whatever other headers say."""
    if dice.random() < 0.2:
        host = dice.choice(LOCAL)
        return host, expected(plain.get(host=host), (200,))
    host = dice.choice(HOSTS)
    other = dice.choice(["X-Forwarded-Host", "X-Forwarded-For", "Forwarded", "X-Real-IP", "Origin"])
    return host, expected(plain.get(host=host, **{other: "127.0.0.1"}), (400, 421))


def method(plain: Server, guarded: Server, dice: random.Random) -> tuple[str, str]:
    """Only GET and HEAD are answered; the server writes nothing."""
    name = dice.choice(METHODS)
    path = dice.choice(["/", "/runs/run", "/file/run/config.json", "*", "http://example.com/"])
    override = {"X-HTTP-Method-Override": "GET", "Content-Length": "0"}
    return f"{name} {path}", expected(plain.get(path, method=name, **override), (400, 405))


def traversal(plain: Server, guarded: Server, dice: random.Random) -> tuple[str, str]:
    """No address leads out of the served folder."""
    start = dice.choice(["/file/", "/runs/", "/api/live/", "/api/memory/", "/compare?run=", "/", "//", "/file/run/"])
    pieces = [dice.choice(PIECES) for _ in range(dice.randint(1, 8))]
    path = start + dice.choice(["/", "//", "%2f", "\\"]).join(pieces)
    path += dice.choice(["", "secret.txt", "config.json", "/config.json", "etc/passwd", "?token=x", "&run=run"])
    return path, expected(plain.get(path), (200, 303, 307, 400, 404, 405, 409))


def tokens(plain: Server, guarded: Server, dice: random.Random) -> tuple[str, str]:
    """Only the token itself opens the server."""
    near = [TOKEN[:-1], TOKEN + "x", TOKEN.upper(), TOKEN[::-1], "", TOKEN.replace("-", "_"), f"{TOKEN},{TOKEN[1:]}"]
    near += [f"{TOKEN}\x00", TOKEN[:8], "'" + TOKEN, "\xe9" + TOKEN, "null", "*", "a" * 5000, SECRET]
    wrong = dice.choice(near).replace("\x00", "%00")
    path = dice.choice(["/", "/runs/run", "/metrics", "/file/run/config.json", "/page.js", "/api/index", "/nothing"])
    choice = dice.randrange(5)
    if choice == 0:
        return "right", expected(guarded.get(path, Authorization=f"Bearer {TOKEN}"), (200, 404))
    if choice == 1:
        answer = guarded.get(f"{path}?token={TOKEN}")
        cookie = re.search(r"set-cookie: ([^;]+)", answer.head)
        if fault := expected(answer, (303,)):
            return "right in the address", fault
        return "cookie", expected(guarded.get(path, Cookie=cookie[1] if cookie else ""), (200, 404))
    if choice == 2:
        kind = dice.choice(["Bearer", "bearer", "Basic", "Token", ""])
        return f"header {wrong[:40]}", expected(guarded.get(path, Authorization=f"{kind} {wrong}"), (400, 401))
    if choice == 3:
        name = dice.choice(["climb_", "climb_00000000", "session", "token"])
        return f"cookie {wrong[:40]}", expected(guarded.get(path, Cookie=f"{name}={wrong}"), (400, 401))
    name = dice.choice(["token", "Token", "token[]", "token%00"])
    return f"address {wrong[:40]}", expected(guarded.get(f"{path}?{name}={wrong}"), (400, 401))


def garbage(plain: Server, guarded: Server, dice: random.Random) -> tuple[str, str]:
    """Requests that are none are refused or dropped; none of them is answered with a page."""
    whole = b"GET / HTTP/1.1\r\nHost: example.com\r\n"
    made: list[bytes] = [
        dice.randbytes(dice.choice([1, 100, 10_000])),
        whole[: dice.randrange(len(whole))],
        whole + b"X: " + b"y" * 200_000 + b"\r\n\r\n",
        whole + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        whole + b"Content-Length: -1\r\n\r\n",
        whole + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        whole + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\nzz\r\n",
        whole.replace(b"1.1", b"9.9") + b"\r\n",
        whole + b"Host: 127.0.0.1\r\n\r\n",
        whole + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
        b"GET http://example.com/ HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(500),
        whole.replace(b"\r\n", b"\n") + b"\n",
        b"GET / HTTP/1.0\r\n\r\n",
    ]
    request = dice.choice(made)
    return repr(request[:60]), expected(plain.ask(request, end=True), (None, 400, 405, 421, 431))


def wave(plain: Server, guarded: Server, dice: random.Random) -> tuple[str, str]:
    """During hundreds of idle, slow and stalled connections, a client gets its page; later, they are closed."""
    idle, slow, stalled = dice.randint(200, 500), dice.randint(20, 80), dice.randint(5, 30)
    described = f"{idle} idle, {slow} slow, {stalled} stalled"
    with ExitStack() as stack:
        opened = [stack.enter_context(plain.connection()) for _ in range(idle + slow + stalled)]
        for connection in opened[idle:]:
            with suppress(ConnectionError):
                connection.sendall(b"GET / HT" if dice.random() < 0.5 else b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for connection in opened[idle + slow :]:  # requests without end, whose answers nobody reads
            with suppress(ConnectionError):
                connection.sendall(b"\r\n" + b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50)
        began = time.monotonic()
        for _ in range(5):
            for connection in opened[idle : idle + slow]:
                with suppress(ConnectionError):
                    connection.sendall(b"X")
            if fault := expected(plain.get(), (200,)):
                return described, fault
        seconds = time.monotonic() - began
        if seconds > SECONDS:
            return described, f"five answers took {seconds:.0f} s"
        deadline = time.monotonic() + SECONDS
        while still := sum(not _is_closed(connection) for connection in opened[: idle + slow]):
            if time.monotonic() > deadline:
                return described, f"{still} connections are still open after {SECONDS} s"
            time.sleep(0.5)
    return described, expected(plain.get(), (200,))


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while part := connection.recv(2**16):
            del part
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


KINDS: dict[str, Trial] = {
    "host name": host_name, "method": method, "traversal": traversal, "token": tokens, "garbage": garbage
}  # fmt: skip


def write_runs(root: Path) -> Path:
    """A folder with a run, links that lead out of it, and secrets around it."""
    runs = root / "runs"
    execute(config_of(0), Execution(device="cpu", keep=True), runs / "run")
    for folder in (root, root / "secret", runs, runs / "run"):
        folder.mkdir(exist_ok=True)
        (folder / "secret.txt").write_text(SECRET)
    shutil.copytree(runs / "run", root / "out")
    (root / "out" / "config.json").write_text(SECRET)
    (root / "out" / "journal.jsonl").write_text(f'{{"batch": 1, "event": "warning", "text": "{SECRET}"}}\n')
    (runs / "link").symlink_to(root / "out")
    shutil.copytree(runs / "run", runs / "linked")
    for name in ("scenario.json", "journal.jsonl", "model.safetensors"):
        (runs / "linked" / name).unlink()
        (runs / "linked" / name).symlink_to(root / "secret.txt")
    return runs


def main() -> None:
    arguments = parse_arguments(__doc__, trials=3000)
    dice, trials = random.Random(arguments.seed), Trials("hostile requests")
    with tempfile.TemporaryDirectory(prefix="climb-soak-") as temporary, ExitStack() as stack:
        runs = write_runs(Path(temporary))
        before = {path: path.stat().st_mtime_ns for path in sorted(runs.rglob("*"))}
        plain, guarded = (
            stack.enter_context(Server(runs, Path(temporary, f"{name}.log"), token).running())
            for name, token in (("plain", None), ("guarded", TOKEN))
        )
        plain.get("/runs/run")
        resident = plain.resident_bytes()
        for number in range(arguments.trials):
            kind, trial = list(KINDS.items())[number % len(KINDS)]
            if number % WAVE == WAVE // 2:
                kind, trial = "wave of connections", wave
            sent, fault = trial(plain, guarded, dice)
            dead = [server.port for server in (plain, guarded) if server.process.poll() is not None]
            trials.add(kind, ok=not (fault or dead), detail=f"{sent}: {fault}; dead: {dead}")
            if dead:
                break
        grown = plain.resident_bytes() - resident
        trials.add("memory of the server", ok=grown < MOST_GROWTH, detail=f"grew by {grown / 1e6:.0f} MB")
        after = {path: path.stat().st_mtime_ns for path in sorted(runs.rglob("*"))}
        logs = "".join(server.log.read_text() for server in (plain, guarded))
        trials.add("logs stay empty", ok=not logs, detail=logs[-2000:])
        trials.add("nothing is written", ok=after == before, detail=str(after.keys() ^ before.keys()))
    trials.finish(arguments.out)


if __name__ == "__main__":
    main()
