"""The hub itself with the environment of the Supabase stack, and behind the proxies as deploy/ configures them."""

import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time

import files
import names
from report import Invalid, NotRun, demand, program, run

SECRET = "a-secret-of-this-check-with-more-than-32-characters"

# The environment of service `realtime` in the stack's compose file, and what newer ones add.
STACK = {
    "PORT": "4000", "DB_HOST": "127.0.0.1", "DB_PORT": "1", "DB_USER": "supabase_admin", "DB_PASSWORD": "nothing",
    "DB_NAME": "postgres", "DB_AFTER_CONNECT_QUERY": "SET search_path TO _realtime", "DB_ENC_KEY": "supabaserealtime",
    "API_JWT_SECRET": SECRET, "API_JWT_JWKS": '{"keys":[]}', "METRICS_JWT_SECRET": SECRET, "SECRET_KEY_BASE": "k" * 64,
    "ERL_AFLAGS": "-proto_dist inet_tcp", "DNS_NODES": "''", "RLIMIT_NOFILE": "10000", "APP_NAME": "realtime",
    "SEED_SELF_HOST": "true", "RUN_JANITOR": "true", "DISABLE_HEALTHCHECK_LOGGING": "true",
    "TIDEWIRE_POLICY_DATABASE_URL": "",
}


def token():
    return subprocess.run(["deploy/token"], input=SECRET, capture_output=True, text=True, check=True).stdout.strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**more):
    return dict(
        {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TIDEWIRE_CONFIG": "deploy/container/tidewire.conf"}, **more)


# What the configuration makes of it


def check_configuration(binary):
    told = run([binary, "config", "--json"], env=environment(**STACK))
    found = {row["name"]: row for row in map(json.loads, told.splitlines()) if "name" in row}
    demand(found["listen"]["value"] == "0.0.0.0:4000", f"listens on {found['listen']['value']}")
    demand(found["data_dir"]["value"] == "/var/lib/tidewire", f"keeps its data in {found['data_dir']['value']}")
    for name in ("database_url", "jwt_secret", "operator_jwt_secret", "metrics_jwt_secret", "jwks", "project_key"):
        demand("environment" in found[name]["source"], f"{name} does not come from the environment")


def check_sample(binary):
    """What the unit's page tells to begin with can be read."""
    with tempfile.TemporaryDirectory() as directory:
        sample = pathlib.Path(directory) / "tidewire.conf"
        sample.write_text(run([binary, "config", "--example"], env=environment()))
        run([binary, "config", "--config", str(sample)], env=environment())


# What is started


@contextlib.contextmanager
def started(words, ready, log, **options):
    with open(log, "w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, **options)
    try:
        for _ in range(200):
            if answers(ready):
                break
            demand(process.poll() is None, pathlib.Path(log).read_text())
            time.sleep(0.05)
        else:
            raise Invalid(f"{words[0]} does not listen on {ready}")
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def hub(binary, directory):
    """Without a database: it tries to reach one in vain, and serves meanwhile."""
    port = free_port()
    more = dict(STACK, PORT=str(port), TIDEWIRE_DATA_DIR=f"{directory}/data", TIDEWIRE_CONNECT_ERROR_BACKOFF="0s")
    with started([binary, "serve"], port, f"{directory}/hub.out", env=environment(**more)):
        yield port


@contextlib.contextmanager
def nginx(upstream, directory):
    port = free_port()
    configuration = files.nginx_configuration(directory, port, free_port(), f"127.0.0.1:{upstream}")
    words = [program("nginx"), "-p", directory, "-e", f"{directory}/error.log", "-c", str(configuration)]
    with started(words, port, f"{directory}/nginx.out"):
        yield Peer(port, "realtime.example.com", isSecure=True)


@contextlib.contextmanager
def caddy(upstream, directory):
    """By http, as nobody would sign the certificate it asks for; `admin off` goes into a copy of the file."""
    port = free_port()
    path = pathlib.Path(directory) / "Caddyfile"
    path.write_text("{\n\tadmin off\n}\n" + (names.DEPLOY / "caddy/Caddyfile").read_text())
    words = [program("caddy"), "run", "--adapter", "caddyfile", "--config", str(path)]
    settings = files.caddy_environment(directory, HUB_SITE=f"http://:{port}", HUB_UPSTREAM=f"127.0.0.1:{upstream}")
    with started(words, port, f"{directory}/caddy.out", env=settings):
        yield Peer(port, "realtime.example.com", isSecure=False)


@contextlib.contextmanager
def envoy(upstream, directory):
    port = free_port()
    path = files.envoy_configuration(directory, port, f"127.0.0.1:{upstream}")
    words = [program("envoy"), "--config-path", str(path), "--concurrency", "1", "--disable-hot-restart",
             "--log-level", "error"]
    with started(words, port, f"{directory}/envoy.out"):
        yield Peer(port, "realtime.example.com", isSecure=False)


class Peer:
    """A server that is talked to by bytes, so that nothing tidies paths up on the way."""

    def __init__(self, port, host, isSecure):
        self.port, self.host, self.isSecure = port, host, isSecure

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        if not self.isSecure:
            return connection
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(connection, server_hostname=self.host)

    def ask(self, path, method="GET", body="", **headers):
        """Status and body, and whether it was the hub that answered: it numbers its answers."""
        with self.connect() as connection:
            connection.sendall(self.head(method, path, {"Content-Length": str(len(body)), "Connection": "close"}, headers)
                               + body.encode())
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        head, _, rest = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), rest.decode(errors="replace"), b"x-request-id:" in head.lower()

    def head(self, method, path, *headers):
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}"]
        lines += [f"{name.replace('_', '-')}: {value}" for some in headers for name, value in some.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def heartbeat(self, path):
        """The status of an upgrade, and what the server says to a heartbeat."""
        with self.connect() as connection:
            connection.sendall(self.head("GET", path, {
                "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode()}))
            answer = b""
            while b"\r\n\r\n" not in answer:
                piece = connection.recv(65536)
                demand(piece, f"closed after {answer}")
                answer += piece
            status = int(answer.split()[1])
            if status != 101:
                return status, ""
            text = b'[null,"1","phoenix","heartbeat",{}]'
            mask = os.urandom(4)
            connection.sendall(bytes([0x81, 0x80 | len(text)]) + mask
                               + bytes(byte ^ mask[index % 4] for index, byte in enumerate(text)))
            return status, connection.recv(65536)[2:].decode(errors="replace")


# What is asked of it


def check_health(port, key):
    """The stack's health check as it stands in its compose file."""
    check = ["curl", "-sSfL", "--head", "-o", "/dev/null", "-H", f"Authorization: Bearer {key}"]
    run(check + [f"http://localhost:{port}/api/tenants/realtime-dev/health"])


def check_image_health(port):
    """The image's own, as the Dockerfile writes it."""
    said = re.search(r"HEALTHCHECK .*\n\s*CMD (\[.*\])", (names.DEPLOY / "Dockerfile").read_text()).group(1)
    run(json.loads(said), env=dict(os.environ, PORT=str(port)))


def check_metrics(port, key):
    """Only with a token; what Prometheus reads has all that the dashboard and the rules ask for."""
    own = Peer(port, "localhost", isSecure=False)
    demand(own.ask("/metrics")[0] == 403, "/metrics is open without a token")
    status, text, _ = own.ask("/metrics", Authorization=f"Bearer {key}")
    demand(status == 200, f"/metrics with a token: {status}")
    exposed = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    asked = {name for _, expression in [*names.dashboard_expressions(), *names.alert_expressions()]
             for name in re.findall(r"\b(?:tidewire|realtime|process)_\w+", names.unquoted_only(expression))}
    missing = {name for name in asked if name not in exposed and re.sub("_(bucket|sum|count)$", "", name) not in exposed}
    demand(not missing, f"the hub does not expose {sorted(missing)}")
    return text


def check_metrics_lint(text):
    done = subprocess.run([program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True)
    # The reference's counters have no _total, and dashboards know them so.
    problems = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("realtime_")]
    demand(not problems, "\n".join(problems))


OPEN = {"/realtime/v1/api/ping": 200}
REFUSED = [
    "/realtime/v1/api/tenants", "/realtime/v1/api/tenants/realtime-dev/health", "/realtime/v1/api/openapi",
    "/realtime/v1/api/%74enants", "/realtime/v1/api/broadcast/../tenants", "/realtime/v1/api/broadcast/%2e%2e/tenants",
    "/realtime/v1//api/tenants", "/realtime/v1/metrics", "/realtime/v1/ready", "/realtime/v1/healthcheck", "/metrics",
    "/api/tenants", "/socket/websocket", "/", "/console", "/console/", "/console/api/tenants", "/console/session",
    "/realtime/v1/console/",
]


def check_proxy(peer, key, log):
    """What clients need comes through, what operators need does not, and keys are not written down."""
    for path, wanted in OPEN.items():
        status, body, _ = peer.ask(path)
        demand(status == wanted, f"{path}: {status} {body}")
    message = json.dumps({"messages": [{"topic": "room", "event": "hello", "payload": {}}]})
    status, body, _ = peer.ask("/realtime/v1/api/broadcast?vsn=2.0.0", "POST", message, apikey=key,
                               Content_Type="application/json")
    demand(status == 202, f"a broadcast: {status} {body}")
    status, body, _ = peer.ask("/realtime/v1/api/broadcast", "POST", message, Content_Type="application/json")
    demand(status == 401, f"a broadcast without a key: {status} {body}")
    status, body, isHub = peer.ask("/realtime/v1/api/changes?table=x")
    demand(status == 401 and isHub and "TokenMissing" in str(body), f"changes without a key: {status} {body}")
    status, said = peer.heartbeat(f"/realtime/v1/websocket?apikey={key}&vsn=2.0.0")
    demand(status == 101 and '"ok"' in said, f"a socket: {status} {said}")
    status, _ = peer.heartbeat("/realtime/v1/websocket?apikey=nonsense&vsn=2.0.0")
    demand(status == 401, f"a socket with a wrong key: {status}")
    for path in REFUSED:
        status, _, isHub = peer.ask(path, Authorization=f"Bearer {key}")
        demand(status in (400, 403, 404) and not isHub, f"{path} comes through: {status}")
    demand(key not in pathlib.Path(log).read_text(), f"{pathlib.Path(log).name} holds a client's key")


def check_ends_as_first_process(binary, directory):
    """As the first process of a container, whose signals the kernel treats otherwise: SIGHUP reloads, SIGTERM ends it."""
    port = free_port()
    output = f"{directory}/first.out"
    more = dict(STACK, PORT=str(port), TIDEWIRE_DATA_DIR=f"{directory}/first")
    words = [program("unshare"), "--fork", "--pid", "--kill-child", binary, "serve"]
    if subprocess.run(words[:4] + ["true"], capture_output=True).returncode:
        raise NotRun("this user may not make a namespace for processes")
    with started(words, port, output, env=environment(**more)) as process:
        first = int(pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        os.kill(first, signal.SIGHUP)
        for _ in range(100):
            if "read again" in pathlib.Path(output).read_text():
                break
            time.sleep(0.05)
        else:
            raise Invalid("SIGHUP: " + pathlib.Path(output).read_text())
        os.kill(first, signal.SIGTERM)
        demand(process.wait(25) == 0, f"ended with {process.returncode}")
    demand("stopped" in pathlib.Path(output).read_text(), pathlib.Path(output).read_text())
