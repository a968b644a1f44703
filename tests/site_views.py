"""Looks at every page of a built site as readers do: `python -m tests.site_views docs/_build/html`.

In headless Chromium, at the widths of a desk and of a telephone, dark and light. It prints pages
that are wider than the window and texts with less contrast than 3 to 1, and fails if there are any.
Not a test of the default run: it needs a browser.
"""

import functools
import html
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

WIDTHS, THEMES = (1280, 390), ("light", "dark")
PAGES_AT_A_TIME = 8

# Every page in a frame of the width; what is wider than the frame and does not scroll is cut off.
SCRIPT = """
const luminance = colour => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element, view) => {
  for (let e = element; e; e = e.parentElement) {
    const parts = view.getComputedStyle(e).backgroundColor.match(/[\\d.]+/g);
    if (parts.length < 4 || Number(parts[3]) > 0.5) return `rgb(${parts.slice(0, 3)})`;
  }
  return 'rgb(255, 255, 255)';
};
const faint = (page, view) => {
  const found = [];
  const texts = 'article p, article td, article th, article li, article pre span, .cards *';
  for (const element of page.querySelectorAll(texts)) {
    if (!element.textContent.trim()) continue;
    const a = luminance(view.getComputedStyle(element).color);
    const b = luminance(behind(element, view));
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 3)
      found.push(element.textContent.trim().slice(0, 30));
  }
  return found;
};
const look = (address, width, theme) => new Promise(done => {
  const frame = document.createElement('iframe');
  frame.style = `width:${width}px;height:800px;border:0`;
  frame.onload = () => setTimeout(() => {
    const page = frame.contentDocument;
    page.body.dataset.theme = theme;
    const root = page.documentElement;
    const result = {page: address, width, theme, wider: root.scrollWidth - root.clientWidth,
                    faint: faint(page, frame.contentWindow)};
    frame.remove();
    done(result);
  }, 50);
  frame.src = address;
  document.body.appendChild(frame);
});
(async () => {
  const results = [];
  for (const page of PAGES) for (const width of WIDTHS) for (const theme of THEMES)
    results.push(await look(page, width, theme));
  document.body.innerHTML = '<pre id="results"></pre>';
  document.getElementById('results').textContent = JSON.stringify(results);
})();
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Says nothing of every file."""


def look_at(folder: pathlib.Path, pages: list[str], address: str) -> list[dict]:
    """What the browser found on some pages; `folder` is a copy of the site."""
    constants = {"PAGES": pages, "WIDTHS": WIDTHS, "THEMES": THEMES}
    values = "".join(f"const {name} = {json.dumps(value)};" for name, value in constants.items())
    (folder / "_views.html").write_text(f"<body><script>{values}{SCRIPT}</script></body>")
    browser = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"]
    command = [browser, *options, "--dump-dom", f"{address}/_views.html"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
    found = re.search(r'<pre id="results">(.*?)</pre>', shown, re.S)
    if found is None:
        raise RuntimeError(f"The browser did not finish {pages}:\n{shown[-500:]}")
    return json.loads(html.unescape(found[1]))


def main(site: pathlib.Path) -> int:
    """The number of views with a fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(shutil.copytree(site, pathlib.Path(folder, "site")))
        handler = functools.partial(Quiet, directory=str(copy))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages = [str(path.relative_to(copy)) for path in sorted(copy.rglob("*.html"))]
        views = []
        for start in range(0, len(pages), PAGES_AT_A_TIME):
            address = f"http://127.0.0.1:{server.server_port}"
            views += look_at(copy, pages[start : start + PAGES_AT_A_TIME], address)
        server.shutdown()
    faulty = [view for view in views if view["wider"] > 0 or view["faint"]]
    for view in faulty:
        print(view["page"], view["width"], view["theme"], view["wider"], view["faint"][:3])
    print(f"{len(pages)} pages, {len(views)} views, {len(faulty)} with a fault")
    return len(faulty)


if __name__ == "__main__":
    sys.exit(min(1, main(pathlib.Path(sys.argv[1]))))
