"""Chromium without a window: a page is copied, a script that clicks and measures is added, its result read back."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WATCH = """<script>
window.wrong = [];
addEventListener("error", (e) => wrong.push(String(e.message)), true);
addEventListener("unhandledrejection", (e) => wrong.push(String(e.reason)));
addEventListener("securitypolicyviolation", (e) => wrong.push("refused: " + e.blockedURI));
for (const name of ["error", "warn"]) console[name] = (...all) => wrong.push(all.join(" "));
</script>"""
MEASURE = """<script>
addEventListener("load", () => {
  const all = (s, root = document) => [...root.querySelectorAll(s)];
  const seen = (node) => node.getClientRects().length > 0;
  const result = {};
  try {
    result.wide = document.documentElement.scrollWidth;
    result.window = innerWidth;
    result.requests = performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith("data:"));
    %s
  } catch (error) { wrong.push(String(error)); }
  result.wrong = wrong;
  const show = (text) => {
    const pre = document.body.appendChild(document.createElement("pre"));
    pre.id = "result";
    pre.textContent = text;
  };
  if (parent === window) show(JSON.stringify(result)); else parent.postMessage(JSON.stringify(result), "*");
});
</script>"""
WIDTHS = (390, 768, 1440)
"""Of a phone, a tablet and a laptop, at which every page must fit."""

FITS = """
    const inside = (a, b) =>
      a.left > b.left - 1 && a.right < b.right + 1 && a.top > b.top - 1 && a.bottom < b.bottom + 1;
    const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    const box = (node) => node.getBoundingClientRect();
    for (const node of all("details")) node.open = true;
    const charts = all("svg.chart").filter(seen);
    result.charts = charts.length;
    result.cut = charts.flatMap((svg) => all("text", svg).filter((n) => !inside(box(n), box(svg)))
      .map((n) => n.textContent));
    result.covered = charts.filter((svg) => svg.matches(".scatter")).flatMap((svg) => {
      const others = all(".mark, .hollow, .tick, text.end", svg);
      const covered = (node) => others.some((other) => other !== node && over(box(node), box(other)));
      return all("text.end", svg).filter(covered).map((n) => n.textContent);
    });
    result.scrolls = all(".scroll").filter(seen).filter((n) => n.scrollWidth > n.clientWidth)
      .map((n) => n.closest("section").id || n.ariaLabel);
    result.wide = document.documentElement.scrollWidth;
"""
"""What does not fit: texts of drawings that are cut or covered, and boxes that scroll, everything unfolded."""

FRAME = """<!doctype html><body style="margin:0"><iframe src="%s" style="border:0;width:%dpx;height:740px"></iframe>
<script>addEventListener("message", (e) => {
  const pre = document.body.appendChild(document.createElement("pre"));
  pre.id = "result";
  pre.textContent = e.data;
});</script>"""


def look(page, script="", *, phone=False, width=None, dark=False, scripts=True):
    """What `script` put into `result` on the page, in a window of 1366 x 768, or in an inner one of `width`."""
    width = 360 if phone else width
    text = Path(page).read_text(encoding="utf-8")
    if not scripts:
        text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    text = text.replace('<meta charset="utf-8">', '<meta charset="utf-8">' + WATCH, 1)
    head, end, tail = text.rpartition("</body>")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        copy = Path(place, "page.html")
        copy.write_text(head + MEASURE % script + end + tail, encoding="utf-8")
        if width:
            outer = Path(place, "frame.html")
            outer.write_text(FRAME % (copy.as_uri(), width), encoding="utf-8")
            copy = outer
        settings = ["--blink-settings=preferredColorScheme=0"] if dark else []
        dump = ["--virtual-time-budget=4000", f"--window-size={max(1366, width or 0)},768", "--dump-dom", copy.as_uri()]
        dom = _run([CHROMIUM, *FLAGS, f"--user-data-dir={place}/profile", *settings, *dump])
    found = re.search(r'<pre id="result">(.*?)</pre>', dom, flags=re.DOTALL)
    assert found, f"the page gave no result: {dom[-500:]}"
    return json.loads(html.unescape(found[1]))


def _run(command, seconds=60):
    """Standard output; the browser and its children end with it in any case."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
