"""Access control in front of every answer: who may read, and what a page may do in the browser."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
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
READ_ONLY = "This server is read-only: it accepts GET and HEAD.\n"
NEEDS_TOKEN = "This server needs its token: open it once with ?token=..., or send 'Authorization: Bearer ...'.\n"
LOCAL_ONLY = "This server accepts requests to the local host only (127.0.0.1, localhost).\n"
SHORTEST = 16  # characters of a token


class Guard:
    """Lets authorised GET and HEAD requests through, and sets strict headers on every answer.

    Without a token, requests for another host name are rejected. Otherwise a foreign page could reach the server under
    a name of its own (DNS rebinding). With a token, a browser that sends it once gets a cookie in exchange.

    Raises:
        InputError: the token is too short or cannot be sent.
    """

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        check_token(token)
        self._app = app
        self._token = token
        self._cookie = f"climb_{secrets.token_hex(4)}"  # all ports of a host share their cookies
        self._session = secrets.token_urlsafe(32)  # the cookie must not contain the token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or forward one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # there are no websockets

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that may not pass; None for one that may."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse(READ_ONLY, 405, headers={"Allow": "GET, HEAD"})
        if self._token is None:
            return None if is_loopback(_host(request.headers.get("Host", ""))) else PlainTextResponse(LOCAL_ONLY, 421)
        if equal(request.query_params.get("token", ""), self._token):
            # Checked first: strip the token from the URL even for known sessions.
            return self._redirect_with_cookie(request)
        if equal(request.cookies.get(self._cookie, ""), self._session):
            return None
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and equal(token, self._token):
            return None
        return PlainTextResponse(NEEDS_TOKEN, 401, headers={"WWW-Authenticate": "Bearer"})

    def _redirect_with_cookie(self, request: Request) -> Response:
        """Redirect to the same address without the token."""
        query = urlencode([(key, value) for key, value in request.query_params.multi_items() if key != "token"])
        # A path of two slashes would lead to another server.
        address = "/" + request.url.path.lstrip("/") + (f"?{query}" if query else "")
        answer = RedirectResponse(address, 303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer


def check_token(token: str | None) -> None:
    """Reject a token that is easily guessed or does not fit into an HTTP header.

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
            "a token may have printable ASCII characters only, and no space at its ends, to fit into an HTTP header; "
            'make one with "openssl rand -hex 16"'
        )


def equal(text: str, secret: str) -> bool:
    """Compare in constant time, so that the time does not reveal a part of the secret."""
    return hmac.compare_digest(text.encode(), secret.encode())


def is_loopback(host: str) -> bool:
    """Whether an address is the local host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:  # such as an incomplete IPv6 address
        return ""
