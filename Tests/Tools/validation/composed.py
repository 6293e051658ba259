"""The services of compose.yaml, one after another as it orders them, without containers: with a PostgreSQL of the moment."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import time

from files import yaml_of
from live import STACK, check_health, environment, free_port, token
from names import DEPLOY
from report import Invalid, NotRun, demand, run

FILLED_IN = {"POSTGRES_DB": "app", "POSTGRES_PASSWORD": "p0stgres", "HUB_PASSWORD": "h-u_b", "POLICY_PASSWORD": "p-o_l",
             "JWT_SECRET": "s" * 40}


def filled(value):
    """As Compose puts variables in; those with a default keep it."""
    return re.sub(r"\$\{(\w+)(?::[?-]([^}]*))?\}", lambda found: FILLED_IN.get(found[1], found[2] or ""), str(value))


def postgres_binaries():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found or int(found[-1].parts[-3]) < 15:
        raise NotRun("there is no PostgreSQL 15 here (deploy/packages)")
    return found[-1].parent


def as_server_user(directory):
    """PostgreSQL does not run as root."""
    if os.geteuid():
        return []
    shutil.chown(directory, "postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


@contextlib.contextmanager
def postgres(service, directory):
    """Started with the service's own arguments."""
    binaries, data, port = postgres_binaries(), pathlib.Path(directory) / "database", free_port()
    data.mkdir()
    pathlib.Path(directory).chmod(0o755)
    secret = data.parent / "superuser"
    secret.write_text(FILLED_IN["POSTGRES_PASSWORD"])
    user = as_server_user(data)
    shutil.chown(secret, data.owner())
    run(user + [binaries / "initdb", "--pgdata", data, "--username=postgres", "--auth=scram-sha-256", f"--pwfile={secret}",
                "--encoding=UTF8", "--no-sync"])
    words = user + [binaries / "postgres", "-D", data, "-p", str(port), "-k", data, "-c", "fsync=off", *service["command"][1:]]
    with open(data.parent / "postgres.out", "w") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait(lambda: not subprocess.run([binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode,
             process, output.name)
        run([binaries / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", FILLED_IN["POSTGRES_DB"]],
            env=dict(os.environ, PGPASSWORD=FILLED_IN["POSTGRES_PASSWORD"]))
        yield port
    finally:
        process.terminate()
        process.wait(20)


def wait(is_ready, process, log):
    for _ in range(300):
        if is_ready():
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise Invalid(pathlib.Path(log).read_text())


def variables(service, port, **more):
    """The service's environment; the host `postgres` is here."""
    given = {name: filled(value) for name, value in service["environment"].items()}
    for host, its_port in (("DB_HOST", "DB_PORT"), ("PGHOST", "PGPORT")):
        if host in given:
            demand(given[host] == "postgres", f"{host} is {given[host]}")
            given.update({host: "127.0.0.1", its_port: str(port)})
    return environment(**{name: value.replace("@postgres/", f"@127.0.0.1:{port}/") for name, value in given.items()}, **more)


@contextlib.contextmanager
def prepared(binary, directory):
    """What `docker compose up` does before it starts the hub, and does again the next time."""
    services = yaml_of(DEPLOY / "compose.yaml")["services"]
    with postgres(services["postgres"], directory) as port:
        for _ in range(2):
            run([binary, *services["prepare"]["command"]], env=variables(services["prepare"], port))
            passwords = services["passwords"]
            run([*passwords["entrypoint"], *map(filled, passwords["command"])], env=variables(passwords, port))
        yield port


def check_hub(binary, port, directory):
    """Its health check passes, which asks whether changes stream; and its database is all it needs."""
    service = yaml_of(DEPLOY / "compose.yaml")["services"]["hub"]
    own = free_port()
    given = variables(service, port, PORT=str(own), TIDEWIRE_DATA_DIR=f"{directory}/composed")
    health = [word.replace("127.0.0.1:4000", f"127.0.0.1:{own}") for word in service["healthcheck"]["test"][1:]]
    with serving(binary, given, health, directory):
        run([binary, "doctor"], env=given)


def check_in_the_stack(binary, port, directory):
    """With the stack's environment and its superuser the hub makes what it needs, and streams."""
    own = free_port()
    superuser = dict(PGHOST="127.0.0.1", PGPORT=str(port), PGUSER="postgres", PGDATABASE=FILLED_IN["POSTGRES_DB"],
                     PGPASSWORD=FILLED_IN["POSTGRES_PASSWORD"])
    run(["psql", "-qXc", f"CREATE ROLE supabase_admin SUPERUSER LOGIN REPLICATION PASSWORD '{STACK['DB_PASSWORD']}'"],
        env=dict(os.environ, **superuser))
    given = environment(**dict(
        STACK, DB_PORT=str(port), DB_NAME=FILLED_IN["POSTGRES_DB"], PORT=str(own), SLOT_NAME_SUFFIX="stack",
        TIDEWIRE_DATA_DIR=f"{directory}/in_the_stack"))
    health = ["curl", "-sSf", "-o", "/dev/null", f"http://127.0.0.1:{own}/ready"]
    with serving(binary, given, health, directory):
        check_health(own, token())
    # The way back, as the override tells it.
    run([binary, "slot", "drop", "--yes"], env=given)


@contextlib.contextmanager
def serving(binary, given, health, directory):
    log = pathlib.Path(directory) / "serving.out"
    with open(log, "w") as output:
        process = subprocess.Popen([binary, "serve"], env=given, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait(lambda: not subprocess.run(health, capture_output=True).returncode, process, log)
        yield
    finally:
        process.terminate()
        demand(process.wait(25) == 0, log.read_text())
