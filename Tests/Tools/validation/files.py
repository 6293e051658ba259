"""Every file by its own validator."""

import getpass
import json
import os
import pathlib
import re
import subprocess
import tempfile

from names import DEPLOY, dashboard_expressions, rules
from report import NotRun, demand, program, run


def yaml_of(path):
    try:
        import yaml
    except ImportError:
        raise NotRun("Python has no yaml (python3-yaml); Tests/Tools/check --all brings it") from None
    try:
        documents = list(yaml.safe_load_all(path.read_text()))
    except yaml.YAMLError as problem:
        demand(False, str(problem))
    return documents[0] if len(documents) == 1 else documents


def check_reads(path):
    if path.suffix == ".json":
        try:
            json.loads(path.read_text())
        except ValueError as problem:
            demand(False, str(problem))
    else:
        yaml_of(path)


# Docker


def copied_paths():
    """What the Dockerfile takes from the project."""
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            yield from words[1:-1]


def check_dockerfile_paths():
    """What is copied exists, and the ignore file lets it through."""
    allowed = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    for path in copied_paths():
        demand(pathlib.Path(path).exists(), f"there is no {path} to copy")
        demand(any(path == one or path.startswith(one + "/") for one in allowed), f"{path} is ignored, and copied")


def check_dockerfile_parses():
    try:
        import dockerfile
    except ImportError:
        raise NotRun("Tests/Tools/check --all brings it") from None
    try:
        commands = dockerfile.parse_file(str(DEPLOY / "Dockerfile"))
    except dockerfile.ParseError as problem:
        demand(False, str(problem))
    known = {"ARG", "FROM", "SHELL", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL",
             "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    for command in commands:
        demand(command.cmd.upper() in known, f"line {command.start_line}: {command.cmd}?")


def check_hadolint():
    run([program("hadolint"), "--no-color", str(DEPLOY / "Dockerfile")])


def check_image_builds():
    try:
        found = subprocess.run(["docker", "info"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        raise NotRun("there is no Docker here") from None
    if found.returncode:
        raise NotRun("there is no Docker daemon here")
    run(["docker", "build", "--check", "--file", "deploy/Dockerfile", "."])


# Compose


def check_compose(path):
    run([program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(path)])


def check_compose_variables(directory):
    """compose.yaml asks for what .env.example has, and for nothing else."""
    asked = set(re.findall(r"\$\{(\w+)", (directory / "compose.yaml").read_text()))
    offered = set(re.findall(r"^(\w+)=", (directory / ".env.example").read_text(), re.M))
    demand(asked == offered, f"only in one of compose.yaml and .env.example: {sorted(asked ^ offered)}")


def check_compose_references(directory):
    compose = yaml_of(directory / "compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        for other in service.get("depends_on", {}):
            demand(other in services, f"{name} depends on {other}, which is none")
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                demand((directory / source).exists(), f"{name}: there is no file {source}")
            else:
                demand(source in compose["volumes"], f"{name}: volume {volume} is not declared")
        build = service.get("build")
        if build:
            context = directory / build["context"]
            demand((context / build["dockerfile"]).exists(), f"{name}: no {build['dockerfile']}")


# The cluster: NATS servers, Kubernetes

KUBERNETES = DEPLOY / "cluster/kubernetes.yaml"
KUBERNETES_VERSION = "1.29"


def without_comments(text):
    lines = (line.split("#")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line]


def check_nats_of_kubernetes():
    """The servers have the same configuration in the manifests as everywhere else."""
    maps = [one for one in yaml_of(KUBERNETES) if one["kind"] == "ConfigMap"]
    ours = without_comments((DEPLOY / "cluster/nats.conf").read_text())
    demand(without_comments(maps[0]["data"]["nats.conf"]) == ours, "the ConfigMap differs from deploy/cluster/nats.conf")


def check_kubernetes_references():
    """What the manifests name is in them, or in the secret that their first lines make."""
    objects = yaml_of(KUBERNETES)
    named = {(one["kind"], one["metadata"]["name"]) for one in objects}
    demand(len(named) == len(objects), "two objects have one name")
    made = set(re.findall(r"--from-literal=(\w+)=", KUBERNETES.read_text()))
    labels = []
    for one in objects:
        if one["kind"] != "StatefulSet":
            continue
        name, spec = one["metadata"]["name"], one["spec"]
        demand(("Service", spec["serviceName"]) in named, f"{name}: there is no service {spec['serviceName']}")
        demand(spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"], f"{name}: selector and labels differ")
        labels.append(spec["selector"]["matchLabels"])
        volumes = {volume["name"] for volume in spec["template"]["spec"].get("volumes", [])}
        volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
        for volume in spec["template"]["spec"].get("volumes", []):
            demand(("ConfigMap", volume["configMap"]["name"]) in named, f"{name}: no ConfigMap for {volume['name']}")
        for container in spec["template"]["spec"]["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                demand(container[probe]["httpGet"]["port"] in ports, f"{name}: {probe} asks a port that is none")
            for mount in container["volumeMounts"]:
                demand(mount["name"] in volumes, f"{name}: there is no volume {mount['name']}")
            known = set()
            for variable in container["env"]:
                for used in re.findall(r"\$\((\w+)\)", variable.get("value", "")):
                    demand(used in known, f"{name}: {variable['name']} uses {used}, which is not set before it")
                known.add(variable["name"])
                secret = variable.get("valueFrom", {}).get("secretKeyRef")
                demand(not secret or secret["key"] in made, f"{name}: the secret has no {secret}")
    for one in objects:
        if one["kind"] in ("Service", "PodDisruptionBudget"):
            selector = one["spec"]["selector"]
            demand(selector.get("matchLabels", selector) in labels, f"{one['metadata']['name']} selects no pods")


def check_kubernetes():
    run([program("kubernetes-validate"), "--kubernetes-version", KUBERNETES_VERSION, "--strict", str(KUBERNETES)])


def nats_environment():
    routes = ", ".join(f"nats://routes:pass@nats{number}:6222" for number in (1, 2, 3))
    return dict(os.environ, NATS_NAME="nats1", NATS_PASSWORD="pass", NATS_ROUTES=f"[{routes}]")


def check_nats():
    """The server's own check of its configuration."""
    server = run(["Tests/Tools/nats"]).split()[-1]
    with tempfile.TemporaryDirectory() as directory:
        text = (DEPLOY / "cluster/nats.conf").read_text()
        demand("store_dir: /data" in text, "deploy/cluster/nats.conf does not say where the streams are")
        path = pathlib.Path(directory) / "nats.conf"
        path.write_text(text.replace("store_dir: /data", f"store_dir: {directory}"))
        run([server, "-t", "--config", str(path)], env=nats_environment())
        # TLS as its comments have it.
        demand("# tls { cert_file" in text, "deploy/cluster/nats.conf does not show TLS")


# systemd


def unit_with_a_program(directory):
    """systemd looks whether the program is there, which it is not before an installation."""
    unit = pathlib.Path(directory) / "tidewire.service"
    unit.write_text((DEPLOY / "tidewire.service").read_text().replace("/usr/bin/tidewire ", "/bin/true ", 1))
    return str(unit)


def check_unit():
    with tempfile.TemporaryDirectory() as directory:
        unit = unit_with_a_program(directory)
        told = run([program("systemd-analyze"), "verify", "--man=no", "--recursive-errors=yes", unit])
        # What it does not know it ignores, says so, and ends well.
        demand("tidewire.service" not in told, told)


def check_unit_exposure():
    with tempfile.TemporaryDirectory() as directory:
        run([program("systemd-analyze"), "security", "--no-pager", "--offline=true", "--threshold=15",
             unit_with_a_program(directory)])


# Proxies


def nginx_configuration(directory, port=8443, plain_port=8080, upstream="127.0.0.1:4000"):
    """Our file in the least of an nginx.conf, with a certificate and a log of the moment."""
    directory = pathlib.Path(directory)
    run([program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=realtime.example.com", "-days", "2", "-keyout", str(directory / "tls.key"),
         "-out", str(directory / "tls.pem")])
    ours = (DEPLOY / "nginx/tidewire.conf").read_text()
    for said, meant in [
            ("/etc/nginx/tls/realtime.example.com.pem", f"{directory}/tls.pem"),
            ("/etc/nginx/tls/realtime.example.com.key", f"{directory}/tls.key"),
            ("/var/log/nginx/hub.log", f"{directory}/hub.log"),
            ("server 127.0.0.1:4000;", f"server {upstream};"),
            ("listen 80;", f"listen 127.0.0.1:{plain_port};"),
            ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")]:
        demand(said in ours, f"deploy/nginx/tidewire.conf does not say {said}, which this check puts its own for")
        ours = ours.replace(said, meant)
    temporary = "".join(f"{kind}_temp_path {directory}/{kind};\n"
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = directory / "nginx.conf"
    path.write_text(f"daemon off;\nuser {getpass.getuser()};\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\nevents {{}}\n"
                    f"http {{\naccess_log off;\n{temporary}\n{ours}\n}}\n")
    return path


def check_nginx():
    with tempfile.TemporaryDirectory() as directory:
        run([program("nginx"), "-t", "-q", "-p", directory, "-e", f"{directory}/error.log",
             "-c", str(nginx_configuration(directory))])


def caddy_environment(directory, **more):
    return dict(os.environ, XDG_DATA_HOME=directory, XDG_CONFIG_HOME=directory, HOME=directory, **more)


def check_caddy():
    with tempfile.TemporaryDirectory() as directory:
        for path in ("caddy/Caddyfile", "cluster/Caddyfile"):
            words = [program("caddy"), "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / path)]
            told = run(words, env=caddy_environment(directory))
            demand("not formatted" not in told, told)


def envoy_configuration(directory, port=8000, upstream="realtime-dev.supabase-realtime:4000"):
    """Our file with other addresses."""
    ours = (DEPLOY / "envoy/envoy.yaml").read_text()
    host, upstream_port = upstream.rsplit(":", 1)
    for said, meant in [
            ("{address: 0.0.0.0, port_value: 8000}", f"{{address: 127.0.0.1, port_value: {port}}}"),
            ("{address: realtime-dev.supabase-realtime, port_value: 4000}",
             f"{{address: {host}, port_value: {upstream_port}}}")]:
        demand(said in ours, f"deploy/envoy/envoy.yaml does not say {said}, which this check puts its own for")
        ours = ours.replace(said, meant)
    path = pathlib.Path(directory) / "envoy.yaml"
    path.write_text(ours)
    return path


def check_envoy():
    run([program("envoy"), "--mode", "validate", "--log-level", "error", "--config-path",
         str(DEPLOY / "envoy/envoy.yaml")])


def check_kong_shape():
    """Of Kong's declarative format, what we use of it."""
    kong = yaml_of(DEPLOY / "kong/kong.yml")
    demand(set(kong) == {"_format_version", "_transform", "consumers", "acls", "services"}, f"unknown parts: {set(kong)}")
    consumers = {consumer["username"] for consumer in kong["consumers"]}
    groups = {acl["group"] for acl in kong["acls"]}
    demand({acl["consumer"] for acl in kong["acls"]} == consumers, "each consumer is in a group")
    names = []
    for service in kong["services"]:
        names.append(service["name"])
        demand(re.fullmatch(r"https?://[\w.-]+:\d+/\w*", service["url"]), f"{service['name']}: {service['url']}?")
        for key in ("read_timeout", "write_timeout"):
            demand(service.get(key, 75000) > 60000, f"{service['name']}: {key} is not above the hub's idle_timeout")
        for route in service["routes"]:
            names.append(route["name"] + " (route)")
            demand(all(path.startswith("/realtime/v1/") for path in route["paths"]), f"{route['name']}: paths")
        for plugin in service["plugins"]:
            # Those that the Supabase stack's gateway has switched on.
            demand(plugin["name"] in {"cors", "key-auth", "acl", "request-transformer", "request-termination"},
                   f"{service['name']}: plugin {plugin['name']}")
            if plugin["name"] == "acl":
                demand(set(plugin["config"]["allow"]) <= groups, f"{service['name']}: unknown group")
    demand(len(names) == len(set(names)), "a name stands twice")


# Prometheus and Grafana


def check_scrape():
    # Not more than the syntax, as the token's file is not here; the rules are checked by themselves.
    run([program("promtool"), "check", "config", "--syntax-only", str(DEPLOY / "prometheus/scrape.yml")])
    named = yaml_of(DEPLOY / "prometheus/scrape.yml")["rule_files"]
    demand(all((DEPLOY / "prometheus" / name).exists() for name in named), f"rule files: {named}")


def check_rules():
    run([program("promtool"), "check", "rules", str(DEPLOY / "prometheus/alerts.yml")])


def check_rule_tests():
    run([program("promtool"), "test", "rules", "alerts.test.yml"], cwd=DEPLOY / "prometheus")


def check_rules_are_whole():
    """Each rule says what it is about, how bad it is and what to do, and has a test that makes it fire."""
    tests = yaml_of(DEPLOY / "prometheus/alerts.test.yml")["tests"]
    fired = {name for test in tests for query in test["promql_expr_test"] for sample in query["exp_samples"]
             for name in re.findall(r'alertname="(\w+)"', sample["labels"])}
    names = []
    for rule in rules():
        names.append(rule["alert"])
        demand(rule["labels"].get("severity") in {"critical", "warning"}, f"{rule['alert']}: severity")
        for part in ("summary", "description", "runbook"):
            demand(len(rule["annotations"].get(part, "")) > 20, f"{rule['alert']}: no {part}")
        demand(rule["alert"] in fired, f"{rule['alert']}: no test makes it fire")
    demand(len(names) == len(set(names)), "a rule stands twice")


def check_queries():
    """The dashboard's queries, as recording rules that are never recorded."""
    known = {"$__rate_interval": "5m", "$instance": "hub", "$tenant": "project"}
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for number, (place, expression) in enumerate(dashboard_expressions()):
        if place.startswith("variable"):
            continue
        for variable, value in known.items():
            expression = expression.replace(variable, value)
        demand("$" not in expression, f"{place}: a variable is left: {expression}")
        lines += [f"      - record: dashboard:{number}", f"        expr: {json.dumps(expression)}"]
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "dashboard.yml"
        path.write_text("\n".join(lines) + "\n")
        run([program("promtool"), "check", "rules", str(path)])


def check_dashboard():
    """Grafana has no validator of its own outside of Grafana: what it would stumble over."""
    dashboard = json.loads((DEPLOY / "grafana/tidewire.json").read_text())
    panels = dashboard["panels"]
    demand(len({panel["id"] for panel in panels}) == len(panels), "an id stands twice")
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    taken = {}
    for panel in panels:
        title, place = panel["title"], panel["gridPos"]
        demand(panel["type"] in {"row", "stat", "timeseries"}, f"{title}: type {panel['type']}")
        demand(place["x"] + place["w"] <= 24, f"{title}: too far to the right")
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), title)
                demand(other == title, f"{title} lies over {other}")
        for name in re.findall(r"\$\{?([a-z]\w*)", json.dumps(panel)):
            demand(name in variables, f"{title}: there is no variable {name}")
        demand(panel["type"] == "row" or panel["targets"], f"{title}: shows nothing")
    demand(variables >= {"datasource", "instance", "tenant"}, f"variables: {variables}")
