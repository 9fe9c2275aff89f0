"""Put markup and scripts into every value that a page shows, and open the pages in a real browser.

    python tests/soak/pages.py                  # 1,000 values
    python tests/soak/pages.py --trials 100

A trial replaces one value or key in the JSON files of a run, or the name of a folder or an image, by a payload. Then
Chromium opens the report without a server, and the index, the run, and a comparison with another run on a server. A
trial fails if an element of the payload exists, a script of it runs, an address of it is linked or requested, or a page
cannot be shown at all. Without Chromium and playwright, only the markup is parsed.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from damage import config_of
from PIL import Image
from server import Server
from trials import Trials, parse_arguments

from climb import ClimbError
from climb.export import open_model, search
from climb.export.search_page import write_page
from climb.report import write_report
from climb.session import execute
from climb.settings.config import Execution

MARK = "data-soak"
PAYLOADS = (
    f"<script {MARK}>window.soaked=1</script>",
    f'"><img {MARK} src=x onerror="window.soaked=1">',
    f"'><svg {MARK} onload='window.soaked=1'>",
    f"</title></style></script></textarea><b {MARK}>x</b>",
    f'" {MARK}="1" autofocus onfocus="window.soaked=1" tabindex=1 x="',
    f"' {MARK}='1' onmouseover='window.soaked=1' x='",
    f"--><i {MARK}></i><!--",
    f"]]><u {MARK}></u>",
    f"<a {MARK} href=javascript:window.soaked=1>x</a>",
    "javascript:window.soaked=1",
    "data:text/html,<script>window.soaked=1</script>",
    "//foreign.example/x.js",
    f"&lt;s {MARK}&gt;&#60;s {MARK}&#62;",
    f"\\u003cs {MARK}\\u003e${{7*7}}{{{{7*7}}}}\u2028<s {MARK}>\u202e",
    f"<style {MARK}>*{{background:url(//foreign.example/)}}</style>",
    f"<base {MARK} href=//foreign.example/><meta {MARK} http-equiv=refresh content=0;url=//foreign.example/>",
    f"<iframe {MARK} srcdoc='<script>parent.soaked=1</script>'>",
    f"<math><mtext><table><mglyph><style><!--</style><img {MARK} title='--><img src=x onerror=soaked=1>'>",
)
FILES = ("config.json", "result.json", "journal.jsonl", "scenario.json")
BAD = ("javascript:", "data:text", "//foreign", "http://foreign")
EVERY_NAME = 25  # trials
FOUND_SECONDS = 60
NAMED = ("run folder", "folder of folders", "image")
"""Kinds of names that are shown; the others are values and keys of files."""


def injected(page: Any) -> str:
    """What a payload did to an open page; "" if nothing."""
    found = page.evaluate(
        f"""() => {{
        const marked = [...document.querySelectorAll("[{MARK}]")].map((element) => element.outerHTML);
        const linked = [...document.querySelectorAll("[href], [src], [action], [data-live]")].map((element) =>
            ["href", "src", "action", "data-live"].map((name) => element.getAttribute(name) || "").join(" "));
        return [window.soaked ? "a script ran" : "", ...marked, ...linked.filter((text) =>
            {list(BAD)}.some((bad) => text.trim().toLowerCase().startsWith(bad)))];
    }}"""
    )
    return "; ".join(text[:200] for text in found if text)


class Browser:
    """A page of Chromium that collects what it logs and requests."""

    def __init__(self, playwright: Any, path: str) -> None:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
        self._browser = playwright.chromium.launch(executable_path=path, args=flags, timeout=300_000)
        self._page = self._browser.new_page()
        self._page.set_default_timeout(120_000)
        self._faults: list[str] = []
        self._page.on("console", lambda message: self._log(message.text))
        self._page.on("pageerror", lambda error: self._log(str(error)))
        self._page.on("request", lambda request: self._requested(request.url))

    def _log(self, text: str) -> None:
        # Damaged files have no page, and damaged runs no plots; `injected` finds elements of a payload.
        if not any(known in text for known in ("status of 409", "status of 404", "net::ERR_FILE_NOT_FOUND")):
            self._faults.append(text)

    def _requested(self, url: str) -> None:
        if not url.startswith(("file:", "data:image/", "http://127.0.0.1:")):
            self._faults.append(f"requests {url}")

    def fault(self, address: str, markup: str) -> str:
        """What is wrong with the page at an address; "" if nothing is."""
        self._faults.clear()
        try:
            self._page.goto(address, wait_until="load")
            for element in self._page.query_selector_all("th button, summary")[:2]:
                with suppress(Exception):  # an element that is not shown
                    element.click(timeout=300)
            return injected(self._page) or "; ".join(self._faults)
        except Exception as error:  # such as a page that leads away
            return str(error)[:500]


class Markup(HTMLParser):
    """Parses a page without a browser, and collects what a payload left in it."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if any(name == MARK or name.startswith("on") for name, _ in attrs):
            self.faults.append(f"<{tag} {attrs}>"[:200])
        self.faults += [f"{name}={text}" for name, text in attrs if (text or "").lower().startswith(BAD)]

    def fault(self, address: str, markup: str) -> str:
        """What is wrong with a page; "" if nothing is."""
        self.faults.clear()
        self.reset()
        self.feed(markup)
        return "; ".join(self.faults)


@contextmanager
def viewer() -> Iterator[Browser | Markup]:
    """Chromium if it is installed."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        print("no chromium or no playwright: pages are parsed, not opened", flush=True)
        yield Markup()
        return
    with sync_playwright() as playwright:
        yield Browser(playwright, path)


# -- where payloads go -------------------------------------------------------------------------------------------------

Place = tuple[str, int, tuple[Any, ...], bool]
"""A file, the number of its line, the keys of a value in it, and whether the last key is replaced instead."""


def places_in(folder: Path) -> list[Place]:
    """Every value and every key in the JSON files of a run; of lists, the first value."""
    places = []
    for name in FILES:
        seen = set[str]()
        for number, line in enumerate(documents(folder / name)):
            for keys in paths(line):
                kind = f"{line.get('event')} {keys}"  # one line of each event is enough
                if kind not in seen:
                    seen.add(kind)
                    places.append((name, number, keys, False))
                    if isinstance(keys[-1], str):
                        places.append((name, number, keys, True))
    return places


def documents(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]


def paths(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value of nested data, containers included."""
    if above and above[-1] in ("checksum", "format_version"):
        return
    if above:
        yield above
    items = node.items() if isinstance(node, dict) else enumerate(node[:1]) if isinstance(node, list) else ()
    for key, value in items:
        yield from paths(value, (*above, key))


def replace_in(folder: Path, place: Place, payload: str) -> None:
    """Put a payload at a place. The file becomes one of an older version, which has no checksum."""
    name, number, keys, is_key = place
    lines = documents(folder / name)
    node: Any = lines[number]
    for key in keys[:-1]:
        node = node[key]
    if is_key:
        node[payload] = node.pop(keys[-1])
    else:
        node[keys[-1]] = payload
    if name in ("config.json", "result.json"):
        lines[0] = {**lines[0], "format_version": 1}
        lines[0].pop("checksum", None)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def file_name(payload: str) -> str:
    """A payload that the file system takes as a name."""
    return payload.replace("/", "\u2215")[:80]


# -- trials ------------------------------------------------------------------------------------------------------------


def show(view: Browser | Markup, server: Server, runs: Path, name: str, *, is_run: bool) -> str:
    """What is wrong with the pages of a run; "" if nothing is."""
    page = f"/runs/{quote(name)}"
    for _ in range(FOUND_SECONDS * is_run):
        if server.get(page).status != 404:
            break
        time.sleep(1)  # the server looks for new runs every few seconds
    else:
        if is_run:
            return "the server does not find the run"
    report = runs / name / "report.html"
    with suppress(ClimbError):
        write_report(runs / name)
        if fault := view.fault(report.as_uri(), report.read_text(encoding="utf-8")):
            return f"report: {fault}"
    for address in ("/", page, f"/compare?run={quote(name, safe='')}&run=other"):
        answer = server.get(address)
        if answer.status not in (200, 404, 409):
            return f"{address}: status {answer.status}"
        if answer.status == 200:
            url, markup = f"http://127.0.0.1:{server.port}{address}", answer.body.decode("utf-8")
            if fault := view.fault(url, markup):
                return f"{address}: {fault}"
    return ""


def check(view: Browser | Markup, path: Path) -> None:
    """Make sure that payloads which are not escaped would be noticed."""
    for payload in PAYLOADS:
        markup = (
            f"""<!doctype html><title>x</title><p title='{payload}'></p><p title="{payload}"></p><p>{payload}</p>"""
        )
        path.write_text(markup, encoding="utf-8")
        if MARK in payload and "&lt;" not in payload and not view.fault(path.as_uri(), markup):
            raise SystemExit(f"not noticed: {payload}")


def show_image(view: Browser | Markup, root: Path, model: Any, payload: str) -> str:
    """What is wrong with the page of a search that finds an image of this name."""
    folder = root / file_name(f"images {payload}")
    folder.mkdir()
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number} {file_name(payload)}.png")
    query = next(folder.iterdir())
    page = root / "found.html"
    write_page(page, query, search(model, query, within=folder))
    fault = view.fault(page.as_uri(), page.read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return fault


def main() -> None:
    arguments = parse_arguments(__doc__, trials=1000)
    dice, trials = random.Random(arguments.seed), Trials("markup on pages")
    with tempfile.TemporaryDirectory(prefix="climb-soak-") as temporary, ExitStack() as stack:
        root, runs = Path(temporary), Path(temporary) / "runs"
        whole = root / "whole"
        execute(config_of(0), Execution(device="cpu"), whole)
        model = open_model(whole, device="cpu")
        shutil.copytree(whole, runs / "other")
        server = stack.enter_context(Server(runs, root / "log").running())
        view = stack.enter_context(viewer())
        check(view, root / "raw.html")
        places = places_in(whole)
        dice.shuffle(places)
        for number in range(arguments.trials):
            payload, run = PAYLOADS[number % len(PAYLOADS)], runs / "run"
            if number % EVERY_NAME == EVERY_NAME - 1:
                kind = NAMED[number // EVERY_NAME % len(NAMED)]
                name = f"{number} {file_name(payload)}{'/run' if kind == 'folder of folders' else ''}"
                if kind == "image":
                    fault = show_image(view, root, model, payload)
                else:
                    shutil.copytree(whole, runs / name)
                    fault = show(view, server, runs, name, is_run=True)
                    shutil.rmtree(runs / name.removesuffix("/run"))
            else:
                place = places[number % len(places)]
                kind, name = f"{'key' if place[3] else 'value'} in {place[0]}", str(place)
                shutil.copytree(whole, run)
                replace_in(run, place, payload)
                fault = show(view, server, runs, "run", is_run=place[0] != "config.json")
                shutil.rmtree(run)
            trials.add(kind, ok=not fault, detail=f"{name}, {payload!r}: {fault}")
    trials.finish(arguments.out)


if __name__ == "__main__":
    main()
