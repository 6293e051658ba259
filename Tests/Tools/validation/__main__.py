"""Tests/Tools/check: what deploy/ gives to other programs is what these take, and names what is there."""

import argparse
import os
import pathlib
import sys
import tempfile

import arm64
import composed
import files
import live
import names
from report import NotRun, Report

NEITHER = "neither Debian nor PyPI has it"


def check_reading(report):
    for path in sorted(names.DEPLOY.rglob("*")):
        if path.suffix in {".json", ".yml", ".yaml"}:
            with report.check(path, "JSON" if path.suffix == ".json" else "YAML"):
                files.check_reads(path)


def check_names(report):
    with report.check("deploy/grafana/tidewire.json", "metrics, labels and values that the sources declare"):
        names.check_expressions(names.dashboard_expressions())
    with report.check("deploy/grafana/tidewire.json", "no metric is forgotten"):
        names.check_metrics_are_shown()
    with report.check("deploy/prometheus/alerts.yml", "metrics, labels and values that the sources declare"):
        names.check_expressions(names.alert_expressions())
        names.check_prose()
    with report.check("deploy/", "TIDEWIRE_ variables and settings that the sources declare"):
        names.check_settings()
    with report.check("deploy/supabase/compose.override.yaml", "variables of the reference that the hub knows"):
        names.check_reference_variables()


def check_shapes(report):
    with report.check("deploy/Dockerfile", "paths, beside Dockerfile.dockerignore"):
        files.check_dockerfile_paths()
    for folder in (names.DEPLOY, names.DEPLOY / "cluster"):
        with report.check(f"{folder}/compose.yaml", "variables, beside .env.example"):
            files.check_compose_variables(folder)
        with report.check(f"{folder}/compose.yaml", "services, volumes, builds"):
            files.check_compose_references(folder)
    with report.check("deploy/cluster/kubernetes.yaml", "names, selectors, volumes, secrets"):
        files.check_kubernetes_references()
    with report.check("deploy/cluster/kubernetes.yaml", "the servers' configuration, beside nats.conf"):
        files.check_nats_of_kubernetes()
    with report.check("deploy/kong/kong.yml", "shape"):
        files.check_kong_shape()
    with report.check("deploy/grafana/tidewire.json", "shape"):
        files.check_dashboard()
    with report.check("deploy/prometheus/alerts.yml", "each rule whole and tested"):
        files.check_rules_are_whole()


def check_validators(report):
    """Those of other programs. Each says itself when it is not here."""
    with report.check("deploy/Dockerfile", "BuildKit's parser"):
        files.check_dockerfile_parses()
    with report.check("deploy/Dockerfile", "hadolint"):
        files.check_hadolint()
    for path in ("compose.yaml", "cluster/compose.yaml", "supabase/compose.override.yaml"):
        with report.check(f"deploy/{path}", "schema of the Compose specification"):
            files.check_compose(names.DEPLOY / path)
    with report.check("deploy/tidewire.service", "systemd-analyze verify"):
        files.check_unit()
    with report.check("deploy/tidewire.service", "systemd-analyze security, exposure of 1.5 at most"):
        files.check_unit_exposure()
    with report.check("deploy/nginx/tidewire.conf", "nginx -t"):
        files.check_nginx()
    with report.check("deploy/cluster/nats.conf", "nats-server -t"):
        files.check_nats()
    with report.check("deploy/cluster/kubernetes.yaml", f"schemas of Kubernetes {files.KUBERNETES_VERSION}"):
        files.check_kubernetes()
    with report.check("deploy/caddy/Caddyfile, deploy/cluster/Caddyfile", "caddy validate"):
        files.check_caddy()
    with report.check("deploy/envoy/envoy.yaml", "envoy --mode validate"):
        files.check_envoy()
    with report.check("deploy/package", "the C of an arm64 program, by clang"):
        arm64.check_compiles()
    with report.check("deploy/package", "the checksum's instructions on arm64, by an emulator"):
        arm64.check_checksum()
    with report.check("deploy/prometheus/scrape.yml", "promtool check config, syntax"):
        files.check_scrape()
    with report.check("deploy/prometheus/alerts.yml", "promtool check rules"):
        files.check_rules()
    with report.check("deploy/prometheus/alerts.yml", "promtool test rules"):
        files.check_rule_tests()
    with report.check("deploy/grafana/tidewire.json", "promtool, each query"):
        files.check_queries()


def check_hub(report, binary, directory):
    """The hub alone."""
    with report.check("deploy/container/tidewire.conf", "tidewire config, with the stack's environment"):
        live.check_configuration(binary)
    with report.check("deploy/tidewire.service", "tidewire config --example, read back"):
        live.check_sample(binary)
    with report.check("deploy/Dockerfile", "the hub as first process of its namespace: SIGHUP, SIGTERM"):
        live.check_ends_as_first_process(binary, directory)


def check_served(report, port, directory):
    """What it answers, by itself and behind proxies."""
    key, text = live.token(), ""
    with report.check("deploy/Dockerfile", "its health check, asked of the hub"):
        live.check_image_health(port)
    with report.check("deploy/supabase/compose.override.yaml", "the stack's health check, asked of the hub"):
        live.check_health(port, key)
    with report.check("deploy/prometheus, deploy/grafana", "/metrics of the hub has all they ask for"):
        text = live.check_metrics(port, key)
    with report.check("deploy/prometheus", "promtool check metrics, of the hub's"):
        live.check_metrics_lint(text)
    with report.check("deploy/nginx/tidewire.conf", "nginx before the hub: sockets, broadcasts, what is refused"), \
            live.nginx(port, directory) as peer:
        live.check_proxy(peer, key, f"{directory}/hub.log")
    with report.check("deploy/caddy/Caddyfile", "caddy before the hub: sockets, broadcasts, what is refused"), \
            live.caddy(port, directory) as peer:
        live.check_proxy(peer, key, f"{directory}/caddy.out")
    with report.check("deploy/envoy/envoy.yaml", "envoy before the hub: sockets, broadcasts, what is refused"), \
            live.envoy(port, directory) as peer:
        live.check_proxy(peer, key, f"{directory}/envoy.out")


def check_with_database(report, binary, directory):
    with report.check("deploy/compose.yaml", "its services in order, without containers"), \
            composed.prepared(binary, directory) as port:
        composed.check_hub(binary, port, directory)
        with report.check("deploy/supabase/compose.override.yaml", "the hub with the stack's environment, on a database"):
            composed.check_in_the_stack(binary, port, directory)


def check_running(report, binary):
    if binary is None:
        with report.check("deploy/", "all of it with the hub itself"):
            raise NotRun("the hub is not built")
        return
    with tempfile.TemporaryDirectory() as directory:
        check_hub(report, binary, directory)
        with live.hub(binary, directory) as port:
            check_served(report, port, directory)
        check_with_database(report, binary, directory)


def check_what_cannot_be_had(report):
    with report.check("deploy/Dockerfile", "docker build"):
        files.check_image_builds()
    for path, validator in [("deploy/kong/kong.yml", "kong config parse"), ("deploy/grafana/tidewire.json", "Grafana")]:
        with report.check(path, validator):
            raise NotRun(NEITHER)
    with report.check("deploy/package", "a package for arm64"):
        raise NotRun("the toolchain here has no libraries of Swift for arm64")
    with report.check("deploy/compose.yaml, deploy/supabase/compose.override.yaml", "docker compose up"):
        raise NotRun("it needs a Docker daemon and the images of others")


def built_hub():
    for build in ("release", "debug"):
        path = pathlib.Path(".build") / build / "tidewire"
        if path.exists():
            return path
    return None


def main():
    parser = argparse.ArgumentParser(prog="Tests/Tools/check")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("binary", nargs="?", type=pathlib.Path)
    arguments = parser.parse_args()
    # The lines of this program and of those it starts, in order.
    sys.stdout.reconfigure(line_buffering=True)
    report = Report()
    check_reading(report)
    check_names(report)
    check_shapes(report)
    if arguments.all:
        check_validators(report)
        binary = arguments.binary or built_hub()
        check_running(report, binary and str(binary.resolve()))
        check_what_cannot_be_had(report)
    else:
        print("not run  validators of other programs: Tests/Tools/check --all brings and runs them")
    return report.conclude()


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
