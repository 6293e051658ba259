"""Every page of the web console in a real browser, in front of a hub of its own with a played incident.

    browser.py BINARY                       the checks
    browser.py BINARY --bench SECONDS       how fast pages are drawn, and a live stream of SECONDS
    browser.py BINARY --screenshots DIR     a picture of every page: light, dark and on a phone
"""

import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

SECRET = "a secret of operators for the checks of the console"
BEN = "00000000-0000-4000-8000-00000000be00"
ANA = "00000000-0000-4000-8000-00000000a0a0"
MARKUP = '<img src=x onerror="alert(1)">'
HOSTILE_TABLE = '<img src=x onerror=alert(1)>'
problems = []


def demand(holds, text):
    if not holds:
        problems.append(text)
        print(f"failed   {text}", flush=True)


def token(claims, secret):
    def encoded(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    parts = [json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    message = b".".join(map(encoded, parts))
    return (message + b"." + encoded(hmac.new(secret.encode(), message, hashlib.sha256).digest())).decode()


def operator(role="admin", name="ana@example.com"):
    return token({"sub": name, "tidewire_role": role, "exp": int(time.time()) + 3600}, SECRET)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Hub:
    """`tidewire dev --incident`, and what it said about the incident."""

    def __init__(self, binary, directory):
        self.port = free_port()
        self.directory = directory
        environment = dict(
            os.environ, TIDEWIRE_OPERATOR_JWT_SECRET=SECRET, TIDEWIRE_CONSOLE="on", TIDEWIRE_LEDGER="full",
            TIDEWIRE_LISTEN=f"127.0.0.1:{self.port}", TIDEWIRE_LOG_LEVEL="error")
        self.process = subprocess.Popen(
            [binary, "dev", "--incident", "--json", "--data-dir", directory], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=open(f"{directory}.errors", "w"))
        self.heard, self.steps, self.place = [], [], None
        for line in self.process.stdout:
            record = json.loads(line)
            if record["kind"] == "heard":
                self.heard.append(record)
            if record["kind"] == "step":
                self.steps.append(record)
            if record["kind"] == "place":
                self.place = record
                break
        if not self.place:
            sys.exit("the hub did not start:\n" + pathlib.Path(f"{directory}.errors").read_text())
        self.url = f"http://127.0.0.1:{self.port}/console/"

    def ask(self, binary, *words):
        done = subprocess.run(
            [binary, *words, "--json", "--data-dir", self.directory], capture_output=True, text=True, check=False)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def sql(self, text):
        psql = shutil.which("psql") or sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/psql"))[-1]
        done = subprocess.run([str(psql), "-qX", "-v", "ON_ERROR_STOP=1", self.place["database_url"]], input=text, text=True,
                              capture_output=True, check=False)
        demand(done.returncode == 0, f"SQL: {done.stderr}")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Tab:
    """Page of the console that fails when anything goes wrong in it."""

    def __init__(self, context, url, name):
        self.url, self.name, self.expected = url, name, []
        self.page = context.new_page()
        self.page.on("console", self.said)
        self.page.on("pageerror", lambda error: demand(False, f"{self.name}: {error}"))
        self.page.on("dialog", lambda dialog: (demand(False, f"{self.name}: a script of the data ran"), dialog.dismiss()))

    def said(self, message):
        text = message.text
        if message.type in ("error", "warning") and not any(one in text for one in self.expected):
            demand(False, f"{self.name}: {text[:300]}")

    def go(self, place, wait=True):
        self.name = place
        self.page.goto(self.url + place)
        return self.settled() if wait else self

    def settled(self, seconds=30):
        until = time.time() + seconds
        while time.time() < until:
            # A panel that loads says so. What comes afterwards by itself is not waited for.
            if self.page.evaluate("!!document.querySelector('main') && !document.querySelector('[aria-busy=true]')"):
                return self
            self.page.wait_for_timeout(40)
        demand(False, f"{self.name}: still loading after {seconds} s")
        return self

    def text(self, selector="main"):
        return self.page.locator(selector).first.inner_text()

    def wait_for(self, text, seconds=10):
        with contextlib.suppress(Exception):
            self.page.get_by_text(text).first.wait_for(timeout=seconds * 1000)
            return
        demand(False, f"{self.name}: the page does not say “{text}”, but: {self.text()[:400]}")

    def search(self, text):
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        # The names of tables may still be on their way.
        self.page.wait_for_selector("#found-0")
        self.page.wait_for_timeout(150)
        self.page.keyboard.press("Enter")
        self.name = text
        self.page.wait_for_timeout(30)
        return self.settled()


def sign_in(tab, role="admin"):
    tab.go("", wait=False)
    tab.page.get_by_label("An operator's token").fill(operator(role))
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".frame")
    return tab.settled()


def pages(session):
    return [
        "#/now", "#/stream?from=oldest", "#/change/6", "#/row/office.notes/1", "#/tx/0%2F0", f"#/lanes?user={BEN}",
        f"#/why/6?user={BEN}&role=authenticated", f"#/truths?session={session}&channel=1&at=11", "#/rules?table=office.notes",
        "#/film?table=office.notes&at=6", "#/channels", "#/house", "#/style",
    ]


# Pages whose address says nothing: they let choose.
CHOICES = ["#/change", "#/row", "#/why", "#/truths", "#/nothing"]


# MARK: Signing in

def check_sessions(browser, hub):
    context = browser.new_context()
    tab = Tab(context, hub.url, "sign-in")
    tab.expected = ["403", "401"]
    tab.go("", wait=False)
    tab.page.get_by_label("An operator's token").fill("nonsense")
    tab.page.keyboard.press("Enter")
    tab.wait_for("the token does not admit you")
    sign_in(tab, "viewer")
    tab.wait_for("Changes stream from PostgreSQL")
    tab.go("#/change/6")
    tab.wait_for("Your role does not allow this")
    cookie = next(one for one in context.cookies() if one["name"] == "__Host-tidewire")
    demand(cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Strict", f"the cookie is {cookie}")
    stored = tab.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    demand("eyJ" not in stored, "the token is in the browser's storage")
    headers = {"cookie": f"{cookie['name']}={cookie['value']}", "sec-fetch-site": "same-origin"}
    api = f"http://127.0.0.1:{hub.port}/console/api/tenants"
    asked = browser.new_context().request
    demand(asked.get(api, headers=headers).status == 200, "the cookie is worth nothing before the sign-out")
    tab.page.locator(".tools summary").click()
    tab.page.get_by_role("button", name="Sign out").click()
    tab.page.wait_for_selector("form.signin")
    demand(asked.get(api, headers=headers).status == 401, "a stolen cookie is worth something after the sign-out")
    for missing in ({"cookie": headers["cookie"]}, {**headers, "sec-fetch-site": "same-site"}):
        demand(asked.get(api, headers=missing).status == 403, f"a request that no page sent is answered: {list(missing)}")
    context.close()


def check_hostile_page(browser, hub, context):
    """A page on another port of the same host: the browser sends it the cookie."""
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(f"<iframe src='http://127.0.0.1:{hub.port}/console/'></iframe>".encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    statuses = {}
    page.on("response", lambda response: statuses.update({(response.request.method, response.url.split("/console/")[1]): response.status}))
    root = f"http://127.0.0.1:{hub.port}/console/"
    page.evaluate("""async (root) => {
        const ask = (path, options) => fetch(root + path, { mode: 'no-cors', credentials: 'include', ...options }).catch(() => {})
        await ask('api/tenants'); await ask('session')
        await ask('api/tenants/realtime-dev/log', { method: 'POST', body: '{"questions":[]}' })
        await ask('session', { method: 'POST' })
    }""", root)
    wanted = [("GET", "api/tenants"), ("GET", "session"), ("POST", "api/tenants/realtime-dev/log"), ("POST", "session")]
    for one in wanted:
        demand(statuses.get(one) == 403, f"a page on another port: {one} gets {statuses.get(one)}")
    demand(not any("Tidewire" in (frame.title() or "") for frame in page.frames[1:]), "another page shows the console in a frame")
    # A client's socket whose topic and claims are markup.
    secret = pathlib.Path(hub.directory, "jwt_secret").read_text().strip()
    key = token({"role": "authenticated", "sub": MARKUP, "session_id": "s", "exp": int(time.time()) + 3600}, secret)
    joined = page.evaluate("""([port, key, table, topic]) => new Promise((done) => {
        const socket = new WebSocket(`ws://127.0.0.1:${port}/realtime/v1/websocket?apikey=${key}&vsn=1.0.0`)
        const config = { postgres_changes: [{ event: '*', schema: 'office', table }] }
        socket.onopen = () => socket.send(JSON.stringify({ topic: 'realtime:' + topic, event: 'phx_join', payload: { config, access_token: key }, ref: '1' }))
        socket.onmessage = (message) => { if (message.data.includes('phx_reply')) done(message.data) }
        socket.onclose = () => done('closed')
        window.kept = socket
    })""", [hub.port, key, HOSTILE_TABLE, MARKUP])
    demand('"ok"' in joined, f"the client with markup did not join: {joined[:200]}")
    server.shutdown()
    return page


# MARK: Pages

def check_pages(browser, hub, state, session):
    axe = Axe()
    for scheme in ("light", "dark"):
        context = browser.new_context(storage_state=state, color_scheme=scheme, viewport={"width": 1280, "height": 860})
        tab = Tab(context, hub.url, scheme)
        tab.expected = ["Failed to load resource"]
        # Colours are all that differs in the dark.
        for place in pages(session) + CHOICES if scheme == "light" else pages(session)[2:9:2] + ["#/style"]:
            tab.go(place, wait=place != "#/style")
            if place == "#/style":
                tab.wait_for("A table of many lines")
            demand(tab.page.title().endswith("Tidewire"), f"{place} has the title {tab.page.title()}")
            rules = None if scheme == "light" else {"runOnly": ["color-contrast"]}
            found = axe.run(tab.page, options=rules).response["violations"]
            for violation in found:
                where = "; ".join(node["html"][:160] for node in violation["nodes"][:2])
                demand(False, f"{scheme} {place}: {violation['id']}: {violation['help']}: {where}")
        context.close()
    context = browser.new_context(storage_state=state, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab = Tab(context, hub.url, "phone")
    tab.expected = ["Failed to load resource"]
    for place in pages(session)[1::2]:
        tab.go(place, wait=place != "#/style")
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        demand(wide <= 390, f"on a phone {place} is {wide} pixels wide")
    context.close()


def told(tab):
    """Number of clients that a Change page shows, by outcome."""
    cells = tab.page.locator("section:has(h2:text-is('Who was told')) tbody tr td:first-child .badge").all_inner_texts()
    counts = {}
    for cell in cells:
        word = cell.strip()[2:]
        counts[word] = counts.get(word, 0) + 1
    return counts


def check_questions(browser, hub, binary, state):
    """Ten questions about the incident, answered by the keyboard and the page alone; the truth is what the devices heard."""
    context = browser.new_context(storage_state=state)
    tab = Tab(context, hub.url, "questions")
    tab.go("#/now")
    changes = [one for one in hub.ask(binary, "tail", "--from", "oldest", "--limit", "15") if one["op"] != "MESSAGE"]
    for change in changes:
        if change["table"] == "colleagues":
            continue
        offset, key = change["offset"], str(change["key"]["id"])
        tab.search(f"@{offset}")
        heard = [one for one in hub.heard if one["op"] == change["op"] and one["table"].endswith(change["table"]) and row_id(one["row"]) == key]
        counts = told(tab)
        sent = sum(counts.get(word, 0) for word in ("sent", "received", "sent later", "received later"))
        demand(sent == len(heard), f"@{offset}: {len(heard)} devices heard it, and the page says {counts}")
        demand("unknown" not in counts, f"@{offset}: nothing is unknown in a full ledger, and the page says {counts}")
    first = next(one for one in changes if one["op"] == "UPDATE")
    tab.search("notes 1")
    demand(tab.page.locator("[aria-label='Versions of the row'] tbody tr").count() == 3, "note 1 has three versions")
    demand("the row was removed" in tab.text(), "note 1 was removed at last")
    tab.search(f"@{first['offset']} {BEN}")
    tab.wait_for("was not told of it")
    tab.wait_for("office.colleagues: the user has 0 memberships, and not this one")
    tab.search(f"@{first['offset']}")
    tab.page.get_by_role("link", name="Why not?").nth(1).click()
    tab.settled()
    tab.wait_for("as the ledger recorded them")
    tab.wait_for("was not told of it")
    tab.search(BEN)
    demand(tab.page.locator("[aria-label='Channels'] tbody tr").count() == 9, "ben had nine channels")
    toast = next(one for one in changes if one["table"] == "toasts")
    tab.search(f"xid:{toast['xid']}")
    demand(tab.page.locator("[aria-label='Changes of the transaction'] tbody tr").count() == 2, "the toast came with one other change")
    tab.search(toast["lsn"])
    tab.wait_for(f"Transaction {toast['xid']}")
    tab.go("#/rules?table=office.notes")
    demand(tab.text().count("1 rule changed") == 2, "the policy of notes changed twice")
    # Two truths: ben's phone had no longer note 1 as it is after the change that was not for him.
    phone = next(one for one in hub.ask(binary, "user", BEN) if one["event"] == "joined" and one["topic"].endswith("listing-5"))
    tab.go(f"#/truths?session={phone['session']}&channel={phone['channel']}&at={first['offset']}")
    tab.wait_for("◇ stale")
    tab.wait_for(f"Why not @{first['offset']}?")
    tab.go("#/film?table=office.notes")
    for _ in range(3):
        tab.page.locator("h1").click()
        tab.page.keyboard.press("ArrowRight")
    tab.wait_for("(4 of")
    context.close()
    return phone["session"]


def row_id(row):
    row = json.loads(row) if isinstance(row, str) and row.startswith("{") else row
    return str(row.get("id") if isinstance(row, dict) else row)


def check_hostile_data(browser, hub, state):
    context = browser.new_context(storage_state=state)
    page = check_hostile_page(browser, hub, context)
    big = "x" * 5_000_000
    hub.sql(f"""BEGIN; INSERT INTO office."{HOSTILE_TABLE}" VALUES (1, '{MARKUP}'), (2, '<script>alert(1)</script>'), (3, '{big}'); COMMIT;""")
    tab = Tab(context, hub.url, "hostile data")
    # Answers that are too large together are asked one by one.
    tab.expected = ["413"]
    deadline = time.time() + 15
    while True:
        tab.go("#/stream?limit=3")
        if "5 000 0" in tab.text() or time.time() > deadline:
            break
        tab.page.wait_for_timeout(300)
        tab.page.reload()
    offset = int(tab.page.locator("tbody tr td:first-child").first.inner_text().strip("@"))
    for place in ("#/stream?limit=3", f"#/change/{offset}", f"#/change/{offset + 2}", "#/channels", "#/lanes?from=-1h", "#/now",
                  "#/row/" + "office.%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E/3", f"#/why/{offset}?user=%3Cb%3E&role=authenticated"):
        tab.go(place)
        demand(tab.page.locator("main img, main script, main b:has-text('topic')").count() == 0, f"{place} has markup of the data")
        demand(len(tab.page.content()) < 2_500_000, f"{place} has all of a value of 5 MB")
    tab.go(f"#/change/{offset}")
    demand(MARKUP in tab.text(), "the page does not show the text of the row")
    tab.go("#/channels")
    demand(MARKUP in tab.text(), "the page does not show the topic")
    page.close()
    context.close()


# MARK: States

def check_states(browser, hub, state):
    context = browser.new_context(storage_state=state)
    tab = Tab(context, hub.url, "states")
    tab.expected = ["Failed to load resource", "net::ERR"]

    def answering(pattern, answer, place, text, then=None):
        tab.page.route(pattern, answer)
        tab.go("#/nothing")
        tab.go(place, wait=False)
        tab.wait_for(text)
        if then:
            then()
        tab.page.unroute_all(behavior="ignoreErrors")

    tail = "**/log/tail?*"
    answering(tail, lambda route: route.fulfill(status=503, body='{"message":"the hub answers other questions"}', headers={"retry-after": "9"}), "#/stream?a=1", "The hub is busy")
    answering(tail, lambda route: route.fulfill(status=500, body="no"), "#/stream?a=2", "The hub failed")
    answering(tail, lambda route: route.abort(), "#/stream?a=3", "The hub cannot be reached")
    answering(tail, lambda route: route.fulfill(status=200, body='{"offset":1,"op":"INSERT","schema":"a","table":"b","time":"2026-11-30T13:41:49.084567Z","key":{"id":1},"record":{"id":1},"lsn":"0/1","xid":1}\n{"offset":2,"op'), "#/stream?where=a%3D4", "The answer ended early")
    answering(tail, lambda route: route.fulfill(status=200, body='{"off\n{"offset":2}\n'), "#/stream?where=a%3D5", "is damaged")
    answering(tail, lambda route: route.fulfill(status=401, body='{"message":"sign in first"}'), "#/stream?where=a%3D6", "You are signed out")
    held = []
    answering(tail, lambda route: held.append(route), "#/stream?where=a%3D7", "The hub is still reading the log",
              lambda: (tab.page.get_by_role("button", name="Cancel").click(), tab.wait_for("Cancelled")))
    for route in held:
        with contextlib.suppress(Exception):
            route.abort()
    tab.go("#/stream?where=a%3D8&table=office.notes")
    tab.wait_for("The hub does not understand the question")
    tab.go("#/change/999999")
    tab.wait_for("The log has no such change")
    context.set_offline(True)
    tab.wait_for("This browser is offline")
    context.close()


def check_keyboard(browser, hub, state):
    context = browser.new_context(storage_state=state)
    tab = Tab(context, hub.url, "keyboard")
    tab.go("#/stream?from=oldest")
    for key in ("j", "j", "j", "k", "Enter"):
        tab.page.keyboard.press(key)
    tab.settled()
    demand("#/change/1" in tab.page.url, f"j j j k Enter leads to {tab.page.url}")
    tab.page.keyboard.press("?")
    tab.wait_for("next and previous line of the table")
    tab.page.keyboard.press("Escape")
    seen = set()
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.outerHTML.slice(0, 80)"))
        outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        demand(outline != "none", f"what has the focus cannot be seen: {tab.page.evaluate('document.activeElement.outerHTML.slice(0, 200)')}")
    demand(len(seen) > 20, "Tab goes through few elements only")
    context.close()


def check_copies(browser, hub, state):
    context = browser.new_context(storage_state=state, permissions=["clipboard-read", "clipboard-write"])
    tab = Tab(context, hub.url, "copies")
    tab.go("#/change/6")
    for name, wanted in (("as Markdown", "| outcome | user |"), ("as CSV", "outcome,user,session"), ("as JSON", '{"outcome":"○ sent"'), ("as text", "outcome")):
        menu = tab.page.locator("section:has(h2:text-is('Who was told')) details.menu")
        menu.locator("summary").click()
        menu.get_by_role("button", name=name, exact=True).click()
        tab.page.wait_for_timeout(50)
        copy = tab.page.evaluate("navigator.clipboard.readText()")
        demand(copy.startswith(wanted) and ANA in copy and "T13" not in copy.split("\n")[0], f"{name}: {copy[:200]}")
    context.close()


def check_unmasking(browser, hub, state):
    context = browser.new_context(storage_state=state)
    tab = Tab(context, hub.url, "unmasking")
    tab.go("#/row/office.notes/2")
    demand("***" in tab.text(), "the phone of a note is not masked")
    tab.page.get_by_role("button", name="Unmask …").click()
    tab.page.get_by_label("Reason").fill("ticket 7")
    tab.page.get_by_role("button", name="Show", exact=True).click()
    tab.wait_for("is shown in clear, because: ticket 7")
    tab.settled()
    demand("***" not in tab.text(), "the phone of a note stays masked")
    tab.page.get_by_role("button", name="Mask it again").click()
    tab.settled()
    demand("***" in tab.text(), "the phone of a note is not masked again")
    tab.go("#/house")
    audit = tab.text("section:has(h2:text-is('Audit'))")
    demand("ticket 7" in audit and "ana@example.com" in audit, f"the audit does not say who unmasked, and why: {audit[-600:]}")
    context.close()


# MARK: Without a hub

def check_report(browser, hub, binary, work):
    report = f"{work}/report.html"
    done = subprocess.run([binary, "bundle", "--html", report, "--from", "oldest", "--to", "@15", "--policies", "--note", "notes vanish", "--data-dir", hub.directory],
                          capture_output=True, text=True, check=False)
    demand(done.returncode == 0, f"bundle --html: {done.stderr}")
    demand(sorted(os.listdir(work)) == ["hub", "hub.errors", "report.html"], f"the report leaves something behind: {os.listdir(work)}")
    context = browser.new_context(offline=True)
    tab = Tab(context, f"file://{report}", "report")
    asked = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.go("#/now")
    tab.wait_for("notes vanish")
    tab.search("@6")
    tab.wait_for("Row 1 of office.notes was updated")
    demand(told(tab) == {"sent": 1, "not for it": 2}, f"the report says of @6: {told(tab)}")
    for place in (f"#/why/6?user={BEN}&role=authenticated", "#/stream?from=oldest", f"#/lanes?user={BEN}", "#/row/office.notes/1", "#/rules?table=office.notes", "#/film"):
        tab.go(place)
        demand(tab.page.locator(".state.bad").count() == 0, f"{place} of the report fails: {tab.text()[:300]}")
    tab.wait_for("The table")
    demand(all(url.startswith(("file:", "blob:")) for url in asked), f"the report asks a network: {asked}")
    violations = Axe().run(tab.page).response["violations"]
    demand(not violations, f"the report: {[one['id'] for one in violations]}")
    context.close()


def check_bundle(browser, hub, binary, work):
    bundle = f"{work}/incident.bundle"
    subprocess.run([binary, "bundle", bundle, "--from", "oldest", "--policies", "--data-dir", hub.directory], capture_output=True, check=True)
    server = subprocess.Popen([binary, "open", bundle, "--web"], stdout=subprocess.PIPE, text=True)
    line = next(line for line in server.stdout if "/console/" in line)
    url = line.split(": ")[1].split(" ")[0]
    context = browser.new_context()
    tab = Tab(context, url, "bundle")
    tab.expected = ["Failed to load resource"]
    tab.go("#/now")
    tab.wait_for("A bundle: a window of a log")
    tab.search("@6")
    demand(told(tab) == {"sent": 1, "not for it": 2}, f"the bundle says of @6: {told(tab)}")
    # By a name of somebody else, this machine is nobody.
    tab.expected += ["Cross-Origin-Opener-Policy"]
    tab.page.goto(url.replace("127.0.0.1", "rebound.example"))
    tab.wait_for("Open the console over https, or on localhost")
    for path in ("api/tenants", "session"):
        status = tab.page.evaluate(f"fetch('/console/{path}').then((answer) => answer.status)")
        demand(status == 403, f"a rebound name gets {status} for {path}")
    context.close()
    server.terminate()
    demand(server.wait(15) == 0, "open --web does not end in order")


# MARK: Screenshots

def screenshots(browser, hub, state, session, directory):
    os.makedirs(directory, exist_ok=True)
    for name, options in (("light", {}), ("dark", {"color_scheme": "dark"}), ("phone", {"viewport": {"width": 390, "height": 844}})):
        context = browser.new_context(storage_state=state, **{"viewport": {"width": 1200, "height": 800}, **options})
        tab = Tab(context, hub.url, name)
        for place in pages(session):
            tab.go(place, wait=place != "#/style")
            tab.page.wait_for_timeout(300)
            file = place[2:].split("?")[0].replace("/", "-").replace("%2F", "-")
            tab.page.screenshot(path=f"{directory}/{name}-{file}.png")
        context.close()


# MARK: Figures

FRAMES = """(seconds) => new Promise((done) => {
    let frames = 0
    const began = performance.now()
    const count = () => { frames += 1; performance.now() - began < seconds * 1000 ? requestAnimationFrame(count) : done(frames / seconds) }
    requestAnimationFrame(count)
})"""


def bench(browser, hub, state, seconds):
    """First paint and complete drawing of pages with a warm cache; frames and memory of a live stream of 2,000 changes a second."""
    context = browser.new_context(storage_state=state)
    tab = Tab(context, hub.url, "bench")
    for place in ("#/now", "#/stream?from=oldest", "#/change/6", "#/row/office.notes/1"):
        paints, drawn = [], []
        for _ in range(6):
            tab.page.goto("about:blank")
            tab.go(place)
            paints.append(tab.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"))
            drawn.append(tab.page.evaluate("performance.now()"))
        print(f"{place:24} first paint {sorted(paints[1:])[2]:4.0f} ms, drawn {sorted(drawn[1:])[2]:5.0f} ms (median of 5)")
    hub.sql("CREATE TABLE office.ticks (id bigserial PRIMARY KEY, body text); ALTER PUBLICATION supabase_realtime ADD TABLE office.ticks;")
    tab.go("#/stream?live=1", wait=False)
    tab.wait_for("Live.")
    loop = f"""DO $$ BEGIN FOR i IN 1..{seconds * 10} LOOP
        INSERT INTO office.ticks (body) SELECT 'a tick of the bench' FROM generate_series(1, 200); COMMIT; PERFORM pg_sleep(0.1); END LOOP; END $$;"""
    writer = threading.Thread(target=hub.sql, args=(loop,))
    writer.start()
    tab.page.wait_for_timeout(2000)
    while writer.is_alive():
        rate = tab.page.evaluate(FRAMES, 5)
        heap = tab.page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        rows = tab.page.locator("main tbody tr").count()
        print(f"live stream: {rate:.0f} frames a second, {heap:.0f} MB of heap, {rows} rows in the page; {tab.text('[role=status]:not(.banner)')}")
    writer.join()
    context.close()


def main():
    binary = os.path.abspath(sys.argv[1])
    began = time.time()
    work = tempfile.mkdtemp(prefix="console-")
    os.chmod(work, 0o711)
    hub = Hub(binary, f"{work}/hub")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--host-resolver-rules=MAP rebound.example 127.0.0.1"])
            context = browser.new_context()
            sign_in(Tab(context, hub.url, "sign-in"))
            state = context.storage_state()
            context.close()
            if "--screenshots" in sys.argv:
                session = next(one["session"] for one in hub.ask(binary, "user", BEN) if one["event"] == "joined" and one["topic"].endswith("listing-5"))
                return screenshots(browser, hub, state, session, sys.argv[sys.argv.index("--screenshots") + 1])
            if "--bench" in sys.argv:
                return bench(browser, hub, state, int(sys.argv[sys.argv.index("--bench") + 1]))
            session = None
            checks = [
                ("sessions", lambda: check_sessions(browser, hub)), ("questions", lambda: check_questions(browser, hub, binary, state)),
                ("pages", lambda: check_pages(browser, hub, state, session)), ("states", lambda: check_states(browser, hub, state)),
                ("keyboard", lambda: check_keyboard(browser, hub, state)), ("copies", lambda: check_copies(browser, hub, state)),
                ("unmasking", lambda: check_unmasking(browser, hub, state)),
                ("report", lambda: check_report(browser, hub, binary, work)), ("bundle", lambda: check_bundle(browser, hub, binary, work)),
                ("hostile data", lambda: (hub.sql(f"""CREATE TABLE office."{HOSTILE_TABLE}" (id int PRIMARY KEY, body text);
                    GRANT SELECT ON office."{HOSTILE_TABLE}" TO authenticated; ALTER PUBLICATION supabase_realtime ADD TABLE office."{HOSTILE_TABLE}";"""), time.sleep(1), check_hostile_data(browser, hub, state))),
            ]
            wanted = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else None
            for name, check in checks:
                if wanted and name not in wanted and name != "questions":
                    continue
                start = time.time()
                try:
                    result = check()
                    session = result if name == "questions" else session
                except Exception as error:  # one check that breaks must not hide what the others find
                    demand(False, f"{name}: {type(error).__name__}: {str(error)[:600]}")
                print(f"{name}: {time.time() - start:.1f} s", flush=True)
            browser.close()
    finally:
        hub.stop()
        shutil.rmtree(work, ignore_errors=True)
    print(f"{'failed' if problems else 'passed'}   the console in chromium, {time.time() - began:.0f} s" + (f": {len(problems)} problems" if problems else ""))
    sys.exit(1 if problems else 0)


main()
