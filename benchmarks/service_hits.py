"""Cache hits of POST /compile over one kept connection of the loopback interface.

The peer is a bare uvicorn application that sends the same number of bytes, run beside the service and asked in turn.
"""

from __future__ import annotations

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from measure import ROOT, interleaved, table, timed, write

#: Milliseconds that the median hit should stay below.
AIM = 2.0
_BARE = """
import asyncio, socket, sys, uvicorn
BODY = bytes(int(sys.argv[1]))
async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(BODY))]})
    await send({"type": "http.response.body", "body": BODY})
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen(128)
config = uvicorn.Config(app, http="h11", lifespan="off", log_config=None, access_log=False)
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(config).run(sockets=[listener])
"""


@contextmanager
def server(*command: str) -> Iterator[http.client.HTTPConnection]:
    """A process that says where it listens, and a connection to it."""
    with tempfile.TemporaryDirectory(prefix="schedc-bench-") as directory:
        environment = {**os.environ, "SCHEDC_CACHE_DIR": str(Path(directory, "cache"))}
        with subprocess.Popen(
            [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            try:
                connection = http.client.HTTPConnection(process.stdout.readline().strip().rpartition("http://")[2])
                connection.connect()
                yield connection
                connection.close()
            finally:
                process.terminate()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    connection.request(method, path, body, {"Content-Type": "application/yaml"})
    reply = connection.getresponse()
    content = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"{method} {path} answered {reply.status}: {content.decode(errors='replace')}")
    return content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    repetitions = parser.parse_args().repetitions
    spec = (ROOT / "specs" / "gemm_group_major.yaml").read_bytes()
    path = "/compile?arch=sm_90a"
    with ExitStack() as stack:
        ours = stack.enter_context(server("-m", "sched_compiler.cli", "serve", "--port", "0"))
        cold = timed(lambda: ask(ours, "POST", path, spec))
        size = len(ask(ours, "POST", path, spec))
        bare = stack.enter_context(server("-c", _BARE, str(size)))
        times = interleaved(
            {
                "POST /compile, hit": lambda _: ask(ours, "POST", path, spec),
                "bare uvicorn": lambda _: ask(bare, "POST", "/", spec),
            },
            repetitions,
            warm=100,
        )
    hit, peer = times["POST /compile, hit"], times["bare uvicorn"]
    rows = [[name, t.median, t.quantile(0.99), t.median / peer.median] for name, t in times.items()]
    met = hit.median < AIM
    about = (
        f"{size} bytes over one kept connection, {repetitions} interleaved repetitions. The miss before them took "
        f"{cold:.0f} ms. Aim: a median hit below {AIM:g} ms: {'met' if met else 'missed'}."
    )
    result = {"bytes": size, "miss_ms": cold, "times": {name: t.as_json() for name, t in times.items()}, "met": met}
    write("service_hits", about, result, table(["what", "median ms", "p99 ms", "times the bare server"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
