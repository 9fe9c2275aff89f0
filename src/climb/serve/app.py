"""The addresses of the server. A name in an address is looked up among the runs that were found, never opened."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastapi import FastAPI, HTTPException, Query
from fastapi.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp

from climb.errors import InputError
from climb.report.assets import script, style
from climb.report.encodable import encodable
from climb.report.gallery import gallery
from climb.report.particulars import FILES
from climb.serve.found import Runs
from climb.serve.guard import Guard
from climb.serve.index import index_page, index_parts
from climb.serve.metrics import MEDIA_TYPE, metrics
from climb.serve.pages import combined_version, compare_page, compared, run_page, run_parts
from climb.serve.watched import Parts, WatchedRun, legible

JSON, BYTES = "application/json", "application/octet-stream"
T = TypeVar("T")


def make_app(folder: Path, *, token: str | None = None) -> ASGIApp:
    """The whole server for the runs below ``folder``; without a token it answers to this machine's own names only."""
    runs = Runs(folder)
    app = FastAPI(title="climb", docs_url=None, redoc_url=None, openapi_url=None)
    _add_pages(app, runs)
    _add_news(app, runs)
    _add_files(app, runs)
    return Guard(app, token=token)


def _add_pages(app: FastAPI, runs: Runs) -> None:
    @app.api_route("/", methods=["GET", "HEAD"], response_model=None)
    def index() -> Response:
        return HTMLResponse(index_page(runs.all(), encodable(runs.root.name)))

    @app.api_route("/runs/{name:path}", methods=["GET", "HEAD"], response_model=None)
    def one(name: str) -> Response:
        run = _known(runs, name)
        return HTMLResponse(_told(run.title, lambda: run_page(run)))

    @app.api_route("/compare", methods=["GET", "HEAD"], response_model=None)
    def compare(run: list[str] = Query(default=[])) -> Response:  # noqa: B008 - how FastAPI declares a parameter
        found = _several(runs, run)
        return HTMLResponse(_told("this comparison", lambda: compare_page(found)))


def _add_news(app: FastAPI, runs: Runs) -> None:
    @app.get("/api/index", response_model=None)
    def news_of_all(version: str = "") -> Response:
        found = runs.all()
        now = combined_version(found)
        return _news(now, {} if version == now else index_parts(found))

    @app.get("/api/live/{name:path}", response_model=None)
    def news_of_one(name: str, version: str = "") -> Response:
        run = _known(runs, name)
        now = combined_version([run])
        if version == now:
            return _news(now, {})
        return _news(now, _told(run.title, lambda: run.rendered("live", now, lambda: run_parts(run))))

    @app.get("/api/memory/{name:path}", response_model=None)
    def news_of_memory(name: str, version: str = "") -> Response:
        run = _known(runs, name)
        now = run.memory_version()
        if version == now:
            return _news(now, {})
        pictures = _told(run.title, lambda: run.rendered("memory", now, lambda: {"remembered": gallery(run.memory())}))
        return _news(now, pictures)

    @app.get("/api/compare", response_model=None)
    def news_of_several(run: list[str] = Query(default=[]), version: str = "") -> Response:  # noqa: B008
        found = _several(runs, run)
        now = combined_version(found)
        return _news(now, {} if version == now else _told("this comparison", lambda: compared(found)))

    @app.get("/metrics", response_model=None)
    def numbers() -> Response:
        return PlainTextResponse(metrics(runs.all()), media_type=MEDIA_TYPE)


def _add_files(app: FastAPI, runs: Runs) -> None:
    @app.get("/page.css", response_model=None)
    def stylesheet() -> Response:
        return Response(style(), media_type="text/css")

    @app.get("/page.js", response_model=None)
    def javascript() -> Response:
        return Response(script(), media_type="text/javascript")

    @app.api_route("/file/{name:path}", methods=["GET", "HEAD"], response_model=None)
    def file(name: str) -> Response:
        for known in FILES:
            if name == known or name.endswith(f"/{known}"):
                run = _known(runs, name.removesuffix(known).removesuffix("/"))
                path = run.file(known)
                if path is None:
                    continue
                # Always to be saved, never to be shown: it is not a page of this server.
                if known == "journal.jsonl":  # it may grow meanwhile, and more than was announced cannot be sent
                    saved = {"Content-Disposition": f'attachment; filename="{known}"'}
                    return Response(_told(run.title, path.read_bytes), media_type=BYTES, headers=saved)
                return FileResponse(path, filename=path.name, media_type=BYTES)
        raise HTTPException(404, "there is no such file of a run here")


def _told(title: str, tell: Callable[[], T]) -> T:
    """What ``tell`` gives, or an answer that says what is wrong with the files of a run."""
    try:
        return legible(title, tell)
    except (InputError, OSError) as error:
        raise HTTPException(409, encodable(str(error))) from error


def _known(runs: Runs, name: str) -> WatchedRun:
    run = runs.get(name)
    if run is None:
        raise HTTPException(404, "there is no such run here")
    return run


def _several(runs: Runs, names: list[str]) -> list[WatchedRun]:
    found = [_known(runs, name) for name in dict.fromkeys(names)]
    if not 2 <= len(found) <= 6:
        raise HTTPException(400, "choose two to six runs to compare")
    return found


def _news(version: str, parts: Parts) -> Response:
    return Response(encodable(json.dumps({"version": version, "parts": parts}, ensure_ascii=False)), media_type=JSON)
