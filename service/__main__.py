"""`python -m service`: serve on the address given; settings come from the environment (see `docs/service.md`)."""

from __future__ import annotations

import argparse
import sys

from service import serve


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m service", description="The HTTP compile service.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default 8000)")
    chosen = parser.parse_args(arguments)
    return serve(chosen.host, chosen.port)


if __name__ == "__main__":
    sys.exit(main())
