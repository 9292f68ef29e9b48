"""HTTP/1.1 on a connection: uvicorn's protocol, with a deadline for each request head, and errors as problems.

What goes wrong before there is a request never reaches the application, so it is answered here.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.problems import fault


class Protocol(H11Protocol):
    """`head_timeout` seconds after a connection was made, or after the first byte of a later request, its head has
    arrived in full; otherwise the connection is answered with 408 and closed (without an answer where nothing came).
    """

    head_timeout = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._await_head()
        else:
            self._stop_waiting()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, msg)

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_timeout, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"the head of the request did not arrive within {self.head_timeout:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        if self.conn.our_state is not h11.IDLE:  # an answer is under way: nothing can be said but that it is over
            self.transport.close()
            return
        answer = fault(status, "E080", message, headers={"Connection": "close"}).response()
        head = h11.Response(
            status_code=status, headers=answer.raw_headers, reason=HTTPStatus(status).phrase.encode("ascii")
        )
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
