"""Who may ask, and what a page may do: in front of every answer of the server."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from climb.errors import InputError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ASK = "This server needs its token: open it once with ?token=..., or send the header 'Authorization: Bearer ...'.\n"
SHORTEST = 16  # characters of a token
OTHER_NAME = "This server answers only to the name of this machine itself (127.0.0.1, localhost).\n"


class Guard:
    """Lets only reading through, only from those who may, and puts the same strict headers on every answer.

    Without a token the server is for this machine alone: a request for another host name is refused, so that a page
    from elsewhere cannot reach it under a name of its own (DNS rebinding). With a token, a browser that shows it once
    gets a cookie, and the address bar is rid of the token.

    Raises:
        InputError: the token will not do.
    """

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        check_token(token)
        self._app = app
        self._token = token
        self._cookie = f"climb_{secrets.token_hex(4)}"  # cookies are shared among the ports of a host
        self._session = secrets.token_urlsafe(32)  # not the token: a cookie must not give it away

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other kind of connection is offered

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal if refusal is not None else self._app)(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        """What is answered in place of the page; None lets the request through."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("This server only shows: GET and HEAD.\n", 405, headers={"Allow": "GET, HEAD"})
        if self._token is None:
            return None if is_loopback(_host(request.headers.get("Host", ""))) else PlainTextResponse(OTHER_NAME, 421)
        if equal(request.query_params.get("token", ""), self._token):  # first: also who is known is to be rid of it
            return self._welcome(request)
        if equal(request.cookies.get(self._cookie, ""), self._session):
            return None
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and equal(given, self._token):
            return None
        return PlainTextResponse(ASK, 401, headers={"WWW-Authenticate": "Bearer"})

    def _welcome(self, request: Request) -> Response:
        """The same address without the token, and a cookie."""
        answer = RedirectResponse(_without_token(request.url.path, request.query_params.multi_items()), 303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer


def check_token(token: str | None) -> None:
    """Refuse a token that is easily guessed, or that cannot be sent: a header has room for plain letters only.

    >>> check_token("a-token-of-some-length")
    >>> check_token("secret")
    Traceback (most recent call last):
    climb.errors.InputError: a token needs at least 16 characters; given 6
    """
    if token is None:
        return
    if len(token) < SHORTEST:
        raise InputError(f"a token needs at least {SHORTEST} characters; given {len(token)}")
    if not token.isascii() or not token.isprintable() or token != token.strip():
        raise InputError(
            "a token may have plain letters, digits and signs only (ASCII), and no space at its ends: nobody could "
            'send another one; make one with "openssl rand -hex 16"'
        )


def equal(given: str, expected: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode(), expected.encode())


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(given: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{given}").hostname or ""
    except ValueError:  # half an IPv6 address
        return ""


def _without_token(path: str, query: Iterable[tuple[str, str]]) -> str:
    rest = urlencode([(key, value) for key, value in query if key != "token"])
    # One slash only: '//host' at the start would lead to another server.
    return "/" + path.lstrip("/") + (f"?{rest}" if rest else "")
