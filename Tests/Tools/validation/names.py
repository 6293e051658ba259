"""The names of metrics and settings that deploy/ uses, beside those that the sources declare."""

import json
import pathlib
import re

from report import Invalid, NotRun, demand

DEPLOY = pathlib.Path("deploy")
# Of the process, and of each project.
PROCESS_METRICS = [pathlib.Path("Sources/base/Diagnostics") / name for name in ("ProcessMetrics.swift", "Impossible.swift")]
PROJECT_METRICS = pathlib.Path("Sources/base/Diagnostics/ProjectMetrics.swift")
REFERENCE_METRICS = pathlib.Path("Sources/hub/Gateway/Requests/ReferenceMetrics.swift")
CONFIGURATION = pathlib.Path("Sources/hub/Settings")

# What Prometheus adds, and what we write ourselves.
COMMON_LABELS = {"instance", "job"}
PROJECT_LABELS = {"tenant"}
REFERENCE_LABELS = PROJECT_LABELS | {"code"}


class Metric:
    def __init__(self, kind, label=None, values=(), free=frozenset()):
        self.kind = kind
        self.label = label
        self.values = set(values)
        # Labels that have any value.
        self.free = free


def declared_metrics():
    """Every metric the hub exposes, by the name that queries use."""
    metrics = declared_in(PROJECT_METRICS, PROJECT_LABELS)
    for path in PROCESS_METRICS:
        metrics |= declared_in(path)
    for name in re.findall(r'"(realtime_\w+)", "(?:gauge|counter)"', REFERENCE_METRICS.read_text()):
        metrics[name] = Metric("reference", free=REFERENCE_LABELS)
    return metrics


def declared_in(path, free=frozenset()):
    source = path.read_text()
    labels = {}
    for name, body in re.findall(r"public enum (\w+): String, MetricLabel \{(.*?)\n    \}", source, re.S):
        cases = re.findall(r'^\s*case (\w+) = "(\w+)"', body, re.M)
        plain = [word for line in re.findall(r"^\s*case ([\w, ]+)$", body, re.M) for word in line.split(", ")]
        label = re.search(r'labelName = "(\w+)"', body).group(1)
        labels[name] = (label, [value for _, value in cases] + plain)
    metrics = {}
    for kind, family, name in re.findall(
            r'let \w+ =\s+(Counter|TimeCounter|CounterFamily|Gauge|Histogram)(?:<(\w+)>)?\(\s*"(\w+)"', source):
        label, values = labels[family] if family else (None, ())
        for suffix in ("_bucket", "_sum", "_count") if kind == "Histogram" else ("",):
            metrics[name + suffix] = Metric(kind, label, values, free)
    for name, texts in re.findall(r'Information\(\s*"(\w+)",.*?\[(.*?)\]\)', source, re.S):
        metrics[name] = Metric("Information", free=free | set(re.findall(r'\("(\w+)", \w+\)', texts)))
    for name, figure in re.findall(r'TableFigures\(\s*"(\w+)",\s*"(?:[^"]*)",\s*\.(\w+)', source):
        for suffix in ("_bucket", "_sum", "_count") if figure == "delay" else ("",):
            metrics[name + suffix] = Metric("Histogram" if figure == "delay" else "TableFigures", free=free | {"table", "le"})
    demand(metrics, f"{path}: the metrics cannot be read")
    return metrics


def dashboard_expressions():
    dashboard = json.loads((DEPLOY / "grafana/tidewire.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel “{panel['title']}”", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]


def rules():
    """The alerting rules, as YAML reads them."""
    try:
        import yaml
    except ImportError:
        raise NotRun("Python has no yaml (python3-yaml); Tests/Tools/check --all brings it") from None
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]:
        yield from group["rules"]


def alert_expressions():
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]


def check_expressions(expressions):
    """Every metric of ours is declared, and every label and value it is asked for is one it has."""
    declared = declared_metrics()
    problems = []
    for place, expression in expressions:
        for name, matchers in re.findall(r"\b((?:tidewire|realtime|process)_\w+)(\{[^}]*\})?", unquoted_only(expression)):
            metric = declared.get(name)
            if not metric:
                problems.append(f"{place}: the hub has no metric {name}")
                continue
            problems += [f"{place}: {name}: {problem}" for problem in wrong_matchers(metric, matchers)]
    if problems:
        raise Invalid("\n".join(problems))


def unquoted_only(expression):
    """Names of metrics inside of quotes are values: job="tidewire" is none."""
    return re.sub(r'="(tidewire|realtime)\w*"', '=""', expression)


def wrong_matchers(metric, matchers):
    for label, value in re.findall(r'(\w+)\s*[=!]~?\s*"([^"]*)"', matchers):
        if label in COMMON_LABELS or label in metric.free:
            continue
        if label != metric.label:
            yield f"there is no label {label}"
        else:
            yield from (f"{label} is never {one}" for one in value.split("|") if one not in metric.values)


def check_prose():
    """Metrics that the rules' texts send somebody to."""
    declared = declared_metrics()
    known = set(declared) | {name.rsplit("_", 1)[0] for name in declared if declared[name].kind == "Histogram"}
    for rule in rules():
        for text in rule["annotations"].values():
            for name in re.findall(r"\btidewire_\w+", text):
                demand(name in known or name == "tidewire_policies", f"alert {rule['alert']}: no metric {name}")


def check_metrics_are_shown():
    """What the dashboard leaves out must be left out on purpose."""
    on_purpose = {
        "tidewire_log_first_offset", "tidewire_log_end_offset", "tidewire_log_segments_removed_total",
        "tidewire_connections_open", "tidewire_connections_accepted_total", "tidewire_socket_pieces_total",
        "tidewire_catalog_version", "tidewire_catalog_read_seconds", "tidewire_policies_misread_total",
        "tidewire_bindings_resolved_total", "tidewire_judge_connected", "tidewire_policy_visibility_waits_total",
        "tidewire_policy_terms_total", "tidewire_recall_seconds", "realtime_connections_connected_cluster",
    }
    shown = " ".join(expression for _, expression in dashboard_expressions())
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) if metric.kind == "Histogram" else name
             for name, metric in declared_metrics().items()}
    missing = sorted(name for name in bases if name not in shown and name not in on_purpose)
    demand(not missing, "neither shown nor left out on purpose: " + ", ".join(missing))
    gone = sorted(on_purpose - bases)
    demand(not gone, "left out on purpose, and not there: " + ", ".join(gone))


def declared_settings():
    source = (CONFIGURATION / "AllSettings.swift").read_text()
    return set(re.findall(r'Setting\(\s*"(\w+)"', source))


def configured_files():
    yield from (path for path in DEPLOY.rglob("*") if path.is_file())


def check_settings():
    """Our variables and settings, wherever they are written."""
    settings = declared_settings()
    demand(len(settings) > 20, "the sources' settings cannot be read")
    variables = {"TIDEWIRE_" + name.upper() for name in settings} | {"TIDEWIRE_CONFIG", "TIDEWIRE_PG_BINDIR"}
    for path in configured_files():
        for name in re.findall(r"\bTIDEWIRE_[A-Z][A-Z_]*[A-Z]\b", path.read_text()):
            demand(name in variables, f"{path}: there is no setting for {name}")
    for path in (DEPLOY / "container/tidewire.conf", DEPLOY / "tidewire.service"):
        for name in re.findall(r"^#? *([a-z_]+) = '", path.read_text(), re.M):
            demand(name in settings, f"{path}: there is no setting {name}")


def check_reference_variables():
    """What the override says of the stack's variables is said of variables that the hub knows."""
    known = set()
    for path in CONFIGURATION.glob("*.swift"):
        known |= set(re.findall(r'"([A-Z][A-Z0-9_]+)"', path.read_text()))
    beginnings = tuple(name for name in known if name.endswith("_"))
    own = {"HUB_IMAGE", "POLICY_DATABASE_URL"}
    path = DEPLOY / "supabase/compose.override.yaml"
    for name in re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", path.read_text()):
        if name.startswith("TIDEWIRE_") or name in own:
            continue
        demand(name in known or name.startswith(beginnings), f"{path}: the hub does not know {name}")
