"""The routes of the server. A name in an address is looked up among the discovered runs, never used as a path."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from climb.errors import InputError
from climb.report.details import FILES
from climb.report.markup import encodable
from climb.report.page import SCRIPT, STYLE
from climb.serve import pages
from climb.serve.discovery import Runs
from climb.serve.guard import Guard
from climb.serve.metrics import MEDIA_TYPE, metrics
from climb.serve.watched_run import Parts, WatchedRun, checked

BYTES = "application/octet-stream"


def make_app(folder: Path, *, token: str | None = None) -> ASGIApp:
    """The server's application for the runs below ``folder``. Without a token it answers the local host only."""
    runs = Runs(folder)

    def show_run(request: Request) -> Response:
        run = _run_of(request, runs)
        with checked(run.title):
            return HTMLResponse(pages.run_page(run))

    def show_comparison(request: Request) -> Response:
        chosen = _runs_of(request, runs)
        with checked("this comparison"):
            return HTMLResponse(pages.compare_page(chosen))

    # Open pages request the parts that have changed since their version.

    def update_index(request: Request) -> Response:
        current = runs.all()
        return _update(request, "the index", pages.combined_version(current), lambda: pages.index_parts(current))

    def update_run(request: Request) -> Response:
        run = _run_of(request, runs)
        now = pages.combined_version([run])
        return _update(request, run.title, now, lambda: run.rendered("live", now, lambda: pages.run_parts(run)))

    def update_memory(request: Request) -> Response:
        run = _run_of(request, runs)
        now = run.memory_version()
        return _update(request, run.title, now, lambda: run.rendered("memory", now, lambda: pages.memory_parts(run)))

    def update_comparison(request: Request) -> Response:
        chosen = _runs_of(request, runs)
        now = pages.combined_version(chosen)
        return _update(request, "this comparison", now, lambda: pages.compare_parts(chosen))

    routes = [
        Route("/", lambda request: HTMLResponse(pages.index_page(runs.all(), encodable(runs.root.name)))),
        Route("/runs/{name:path}", show_run),
        Route("/compare", show_comparison),
        Route("/api/index", update_index),
        Route("/api/live/{name:path}", update_run),
        Route("/api/memory/{name:path}", update_memory),
        Route("/api/compare", update_comparison),
        Route("/metrics", lambda request: PlainTextResponse(metrics(runs.all()), media_type=MEDIA_TYPE)),
        Route("/file/{name:path}", lambda request: _download(request.path_params["name"], runs)),
        Route("/page.css", lambda request: Response(STYLE, media_type="text/css")),
        Route("/page.js", lambda request: Response(SCRIPT, media_type="text/javascript")),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={InputError: _conflict, OSError: _conflict}), token=token)


def _find(name: str, runs: Runs) -> WatchedRun:
    if (run := runs.get(name)) is None:
        raise HTTPException(404, "no such run")
    return run


def _run_of(request: Request, runs: Runs) -> WatchedRun:
    return _find(request.path_params["name"], runs)


def _runs_of(request: Request, runs: Runs) -> list[WatchedRun]:
    chosen = [_find(name, runs) for name in dict.fromkeys(request.query_params.getlist("run"))]
    if not 2 <= len(chosen) <= 6:
        raise HTTPException(400, "choose two to six runs to compare")
    return chosen


def _download(name: str, runs: Runs) -> Response:
    """A file of a run, always as a download, so that a browser never shows it as a page of this server."""
    known = next((file for file in FILES if f"/{name}".endswith(f"/{file}")), None)
    path = known and _find(name.removesuffix(known).removesuffix("/"), runs).file(known)
    if not path:
        raise HTTPException(404, "no such file of a run")
    if known == "journal.jsonl":  # it may grow while it is sent, beyond its announced length
        headers = {"Content-Disposition": f'attachment; filename="{known}"'}
        return Response(path.read_bytes(), media_type=BYTES, headers=headers)
    return FileResponse(path, filename=path.name, media_type=BYTES)


def _conflict(request: Request, error: Exception) -> Response:
    """The answer to an error in the files of a run."""
    return PlainTextResponse(encodable(str(error)), 409)


def _update(request: Request, title: str, now: str, make: Callable[[], Parts]) -> Response:
    """The current version, and the parts of the page unless the browser has them."""
    with checked(title):
        parts = {} if request.query_params.get("version") == now else make()
    text = encodable(json.dumps({"version": now, "parts": parts}, ensure_ascii=False))
    return Response(text, media_type="application/json")
