"""A browser without a window, for pages as their readers see them, and a server on this machine."""

import shutil
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


TYPES = {".mjs": "text/javascript", ".wasm": "application/wasm"}  # what a browser insists on


class Quiet(SimpleHTTPRequestHandler):
    """A handler that prints no line for each request."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | TYPES

    def log_message(self, *_):
        pass


@contextmanager
def served(folder):
    """Serve a folder; what is given is its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Start Chromium with a fresh profile, once for all tests."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser found: install one of {', '.join(NAMES)}, as by apt-get install")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Return a function that opens a page; a complaint, or a request elsewhere, is a failure."""
    complaints, contexts = [], []

    def opened(address, *here, may_say=(), **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append((address, message.text))
                if message.type not in may_say else None)  # fmt: skip
        page.on("pageerror", lambda error: complaints.append((address, str(error))))
        page.on("request", lambda request: complaints.append((address, request.url))
                if not request.url.startswith(here) else None)  # fmt: skip
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def show(visit, tmp_path):
    """Return a function that opens a Page of ours as a file, which asks for itself alone."""

    def opened(page, name="", *, width=1280, height=900, **options):
        path = tmp_path / "page.html"
        page.to_html(path)
        size = {"width": width, "height": height}
        return visit(f"{path.as_uri()}#{name}", path.as_uri(), viewport=size, **options)

    return opened
