# SPDX-License-Identifier: Apache-2.0
# browse.py SITE [SCREENSHOTS]: opens every page of the built site in a headless browser, as a phone (390 px) and a desktop (1280 px), light and dark. Fails on a page that is wider than the
# screen, a message of the console that is an error, a request that leaves the site, a picture that does not load, and a search that does not find what it should, from a server and from files.
# `cmake -DBROWSE=ON -P cmake/docs.cmake` runs it. Prints `skipped: ...` where there is no browser.
import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path

SEARCHES = {"stable_addresses": "docs/attach.html", "warmup_cosine": "api/learning_rates.html"}
WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
SHOTS = {"index.html", "docs/attach.html", "docs/performance.html", "docs/errors.html", "api/optimizer.html", "api/schedules.html", "docs/algorithm.html", "docs/digits.html", "docs/numbers.html"}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def main(site, shots):
    browser_path = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    if browser_path is None:
        print("skipped: no chromium, chromium-browser or google-chrome is installed")
        return 0
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("skipped: Python's playwright is not installed (docs/site/requirements-browse.txt)")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{server.server_address[1]}/"
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if "_static" not in path.parts)
    wrong = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for device, (width, height) in WIDTHS.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                context.set_default_timeout(15000)
                page = context.new_page()
                where = ""

                def note(what):
                    wrong.append(f"{device}, {scheme}, {where}: {what}")

                page.on("console", lambda message: note(f"console: {message.text}") if message.type == "error" else None)
                page.on("pageerror", lambda error: note(f"script: {error}"))
                page.on("request", lambda request: None if request.url.startswith((origin, "data:", "file:", "blob:")) else note(f"leaves the site: {request.url}"))
                for where in pages:
                    page.goto(origin + where)
                    room = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                    if room > 0:
                        widest = page.evaluate("""() => { const w = document.documentElement.clientWidth;
                          const scrolls = e => { for (let p = e; p; p = p.parentElement) if (getComputedStyle(p).overflowX != 'visible') return true; return false; };
                          const e = [...document.querySelectorAll('article *')].find(e => e.getBoundingClientRect().right > w + 1 && !scrolls(e)); return e ? e.outerHTML.slice(0, 120) : '?'; }""")
                        note(f"{room} px wider than the screen: {widest}")
                    for source in page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth && i.loading != 'lazy').map(i => i.src)"):
                        note(f"the picture {source} does not load")
                    if shots and where in SHOTS:
                        page.screenshot(path=str(shots / f"{where.replace('/', '_')[:-5]}_{device}_{scheme}.png"))
                if scheme == "light":
                    for start in (origin, site.as_uri() + "/"):
                        for word, target in SEARCHES.items():
                            where = f"search of {word} from {start.split(':')[0]}"
                            page.goto(f"{start}search.html?q={word}")
                            try:
                                page.wait_for_selector("#search-results ul.search li a")
                                page.wait_for_function("document.querySelector('#search-results .search-summary, #search-results p') !== null")
                                page.wait_for_timeout(400)
                                found = page.evaluate("[...document.querySelectorAll('#search-results ul.search li a')].map(a => a.href.split('?')[0].split('#')[0])")
                            except Exception as error:
                                found = [str(error).split("\n")[0]]
                            if not any(address.endswith(target) for address in found):
                                note(f"{target} is not among {len(found)} results: {found[:5]}")
                        if shots and start == origin:
                            page.screenshot(path=str(shots / f"search_{device}.png"))
                context.close()
        browser.close()
    server.shutdown()
    for line in wrong:
        print(line)
    print(f"{len(pages)} pages, two widths, light and dark, {len(SEARCHES)} searches from a server and from files: {len(wrong)} wrong")
    return 1 if wrong or len(pages) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
