#!/usr/bin/env python3
"""Checks the rendered Kubernetes objects, and checks that each check can fail.

The API server does not validate an MPIJob's pod templates, and wrong enum values stop the MPI operator without a
message on the pods. Names, fields and numbers are therefore checked here.

usage: manifests_test.py [--bin DIR]     DIR: contains the programs whose command lines are tested
Exit code 77 (skipped) if kubectl, curl or PyYAML is missing.
"""
import argparse
import base64
import copy
import functools
import http.server
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASE = ROOT / "deploy/kubernetes/base"
OVERLAYS = ROOT / "deploy/kubernetes/overlays"
IMAGE = ROOT / "deploy/image"
BIN = None  # Set by --bin.


def skip(reason):
    print(f"manifests_test: skipped, {reason}")
    sys.exit(77)


try:
    import yaml
except ImportError:
    skip("needs Debian's python3-yaml")
if not shutil.which("kubectl"):
    skip("needs kubectl (1.21 or later) on PATH to render deploy/kubernetes/base")
if not shutil.which("curl"):
    skip("needs curl on PATH to make the reaper's request")


def render(folder):
    text = subprocess.run(["kubectl", "kustomize", str(folder)], check=True, timeout=60,
                          stdout=subprocess.PIPE, text=True).stdout
    return list(yaml.safe_load_all(text))


SCHEMAS = pathlib.Path(__file__).parent / "schemas"
MPIJOB = json.loads((SCHEMAS / "mpijob.json").read_text())
POD_TEMPLATE = MPIJOB["properties"]["spec"]["properties"]["mpiReplicaSpecs"]["additionalProperties"]["properties"]["template"]
KINDS = json.loads((SCHEMAS / "kubernetes.json").read_text())
REQUIRED = json.loads((SCHEMAS / "required.json").read_text())
# Types that kubernetes.json does not describe; their values are not checked.
OPAQUE = ("IntOrString", "Date", "any")
API_VERSIONS = {
    "ConfigMap": "v1", "CronJob": "batch/v1", "Deployment": "apps/v1", "MPIJob": "kubeflow.org/v2beta1",
    "NetworkPolicy": "networking.k8s.io/v1", "PersistentVolumeClaim": "v1", "PodDisruptionBudget": "policy/v1",
    "Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1", "Secret": "v1",
    "Service": "v1", "ServiceAccount": "v1",
}
# The API server does not check these values. A wrong value stops the operator without a message on the pods.
ENUMS = {
    "launcherCreationPolicy": ["AtStartup", "WaitForWorkersReady"],
    "mpiImplementation": ["OpenMPI"],
    "cleanPodPolicy": ["None", "Running", "All"],
    "restartPolicy": ["Never", "OnFailure"],
}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi)?")
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


JSON_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def schema_errors(value, schema, where):
    """Returns the fields that the API server would refuse or drop under an OpenAPI schema, including unknown fields."""
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, (int, str)) and not isinstance(value, bool)
        return [] if fits else [f"{where} is {value}, neither an integer nor a string"]
    kind = schema.get("type")
    if kind and (not isinstance(value, JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{where} is {value!r}, not of type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value}, not one of {', '.join(schema['enum'])}"]
    found = []
    if isinstance(value, list):
        for i, item in enumerate(value):
            found += schema_errors(item, schema.get("items", {}), f"{where}[{i}]")
    elif isinstance(value, dict) and "properties" in schema:
        found += [f"{where} lacks {name}" for name in schema.get("required", []) if name not in value]
        for key, inner in value.items():
            if key in schema["properties"]:
                found += schema_errors(inner, schema["properties"][key], f"{where}.{key}")
            else:
                found.append(f"{where} has an unknown field {key}")
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for key, inner in value.items():
            found += schema_errors(inner, schema["additionalProperties"], f"{where}.{key}")
    return found


def type_errors(value, kind, where):
    """Checks a value by a kubernetes.json type: `string`, `Array<V1ServicePort>`, `{ [key: string]: string; }`."""
    plain = {"string": str, "number": (int, float), "boolean": bool}
    if kind in plain:
        fits = isinstance(value, plain[kind]) and (kind == "boolean" or not isinstance(value, bool))
        return [] if fits else [f"{where} is {value!r}, not of type {kind}"]
    if inner := re.fullmatch(r"Array<(.*)>", kind):
        if not isinstance(value, list):
            return [f"{where} is {value!r}, not a list"]
        return [e for i, item in enumerate(value) for e in type_errors(item, inner[1], f"{where}[{i}]")]
    if inner := re.fullmatch(r"\{ \[key: string\]: (.*?);? \}", kind):
        return [e for key, item in value.items() for e in type_errors(item, inner[1], f"{where}.{key}")]
    if kind in OPAQUE:
        return []
    if kind not in KINDS:
        return [f"{where} is of type {kind}, which has no schema"]
    if not isinstance(value, dict):
        return [f"{where} is {value!r}, not an object"]
    lacks = [f"{where} lacks {name}" for name in REQUIRED.get(kind, []) if name not in value]
    return lacks + [e for key, item in value.items()
                    for e in (type_errors(item, KINDS[kind][key], f"{where}.{key}") if key in KINDS[kind]
                              else [f"{where} has an unknown field {key}"])]


def enum_errors(value, where):
    if isinstance(value, list):
        return [e for i, item in enumerate(value) for e in enum_errors(item, f"{where}[{i}]")]
    if not isinstance(value, dict):
        return []
    found = [f"{where}.{key} is {value[key]}, not one of {', '.join(allowed)}"
             for key, allowed in ENUMS.items() if key in value and value[key] not in allowed]
    return found + [e for key, inner in value.items() for e in enum_errors(inner, f"{where}.{key}")]


class Objects:
    """The rendered objects by kind and name, and their pod templates."""

    def __init__(self, documents):
        self.documents = documents
        self.by_kind = {}
        for document in documents:
            self.by_kind.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
        self.job, = self.by_kind["MPIJob"].values()
        self.launcher = self.job["spec"]["mpiReplicaSpecs"]["Launcher"]
        self.worker = self.job["spec"]["mpiReplicaSpecs"]["Worker"]
        self.hostio = self.by_kind["Deployment"]["poprun-emu-hostio"]
        self.pods = {"launcher": self.launcher["template"], "worker": self.worker["template"],
                     "hostio": self.hostio["spec"]["template"]}
        for reaper in self.by_kind.get("CronJob", {}).values():
            self.pods["reaper"] = reaper["spec"]["jobTemplate"]["spec"]["template"]

    def containers(self):
        for pod, template in self.pods.items():
            for container in template["spec"]["containers"]:
                yield f"{pod}/{container['name']}", container

    def has(self, kind, name):
        return name in self.by_kind.get(kind, {})


def value_of(args, option):
    return args[args.index(option) + 1] if option in args[:-1] else None


def check_fields(objects):
    found = enum_errors(objects.job["spec"], "MPIJob.spec")
    for kind, named in objects.by_kind.items():
        for name, document in named.items():
            where = f"{kind}/{name}"
            if kind not in API_VERSIONS:
                found.append(f"{where} is of a kind that is not checked")
                continue
            if document.get("apiVersion") != API_VERSIONS[kind]:
                found.append(f"{where} has apiVersion {document.get('apiVersion')}, not {API_VERSIONS[kind]}")
            found += type_errors(document["metadata"], "V1ObjectMeta", f"{where}.metadata")
            if kind == "MPIJob":
                found += schema_errors(document, MPIJOB, where)
            else:
                found += type_errors(document, f"V1{kind}", where)
    return found + schema_errors(objects.pods["hostio"], POD_TEMPLATE, "Deployment.spec.template")


def check_gang(objects):
    slots = objects.job["spec"]["slotsPerWorker"] * objects.worker["replicas"]
    args = objects.launcher["template"]["spec"]["containers"][0]["args"]
    found = []
    for option in ("-n", "--num-instances"):
        if value_of(args, option) != str(slots):
            found.append(f"launcher: {option} is {value_of(args, option)}, the workers have {slots} slots")
    if objects.launcher["replicas"] != 1:
        found.append("launcher: replicas is not 1")
    return found


def check_names(objects):
    job = objects.job["metadata"]["name"]
    names = [name for named in objects.by_kind.values() for name in named]
    names += [f"{job}-launcher", f"{job}-worker-{objects.worker['replicas'] - 1}"]
    names += [container["name"] for _, container in objects.containers()]
    return [f"name {name} is not a DNS label of at most 63 characters" for name in names
            if len(name) > 63 or not DNS_LABEL.fullmatch(name)]


def check_images(objects):
    version = re.search(r"project\(poprun-emu VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    pinned = re.compile(rf"[^:@]+(:\d+/[^:@]+)?(:{re.escape(version)}|(:[^:@]+)?@sha256:[0-9a-f]{{64}})")
    return [f"{where}: image {container['image']} is neither tagged {version} nor named by its digest"
            for where, container in objects.containers() if not pinned.fullmatch(container["image"])]


def check_ports(objects):
    found = []
    for where, container in objects.containers():
        ports = [key for port in container.get("ports", []) for key in (port["name"], port["containerPort"])]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            for way in ("grpc", "tcpSocket", "httpGet"):
                if way in probe and probe[way]["port"] not in ports:
                    found.append(f"{where}: {kind} probes port {probe[way]['port']}, which the container lacks")
            # Kubelet has no certificate, and the data server uses TLS for clients on other hosts.
            if "grpc" in probe:
                found.append(f"{where}: {kind} speaks gRPC without TLS")
    hostio = objects.pods["hostio"]["spec"]["containers"][0]
    served = {port["name"]: port["containerPort"] for port in hostio["ports"]}
    listens = value_of(hostio["args"], "--port")
    if listens != str(served["grpc"]):
        found.append(f"hostio: --port is {listens}, the container's port is {served['grpc']}")
    # An open port does not show that the server still accepts connections.
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        command = hostio.get(kind, {}).get("exec", {}).get("command", [])
        if ("--probe" not in command or
                any(value_of(command, option) != value_of(hostio["args"], option) for option in ("--bind", "--port"))):
            found.append(f"hostio: {kind} does not ask the server itself")
    service = objects.by_kind["Service"]["poprun-emu-hostio"]
    port = service["spec"]["ports"][0]
    # A headless Service does not translate ports.
    if port["targetPort"] not in served or port["port"] != served[port["targetPort"]]:
        found.append(f"service: port {port['port']} to {port['targetPort']} is not the container's")
    address = value_of(objects.launcher["template"]["spec"]["containers"][0]["args"], "--hostio-address")
    if address != f"{service['metadata']['name']}:{port['port']}":
        found.append(f"launcher: --hostio-address {address} is not the service")
    return found


def check_metrics(objects):
    """Checks that Prometheus finds the metrics by annotation and by Service, and that other pods cannot reach them."""
    container = objects.launcher["template"]["spec"]["containers"][0]
    port = value_of(container["args"], "--metrics-port")
    (served,) = [p for p in container["ports"] if p["name"] == "metrics"]
    annotations = objects.launcher["template"]["metadata"]["annotations"]
    service = objects.by_kind["Service"]["poprun-emu-metrics"]["spec"]
    ports = {port, str(served["containerPort"]), annotations.get("prometheus.io/port"), str(service["ports"][0]["port"])}
    found = [] if len(ports) == 1 else [f"metrics: ports {sorted(map(str, ports))} differ"]
    expected = {"scrape": "true", "path": "/metrics", "scheme": "https"}
    if any(annotations.get(f"prometheus.io/{key}") != value for key, value in expected.items()):
        found.append("metrics: the launcher's annotations do not lead to /metrics")
    if container["livenessProbe"]["httpGet"].get("scheme") != "HTTPS":
        found.append("metrics: the probe does not use TLS, which the launcher requires beyond loopback")
    if service["ports"][0]["targetPort"] != "metrics":
        found.append("metrics: the Service leads to another port")
    if value_of(container["args"], "--metrics-address") != "0.0.0.0":
        found.append("metrics: are not served at the pod's address")
    launcher = objects.pods["launcher"]["metadata"]["labels"]
    if (not matches({"matchLabels": service["selector"]}, launcher) or
            matches({"matchLabels": service["selector"]}, objects.pods["worker"]["metadata"]["labels"])):
        found.append("metrics: the Service selects pods other than the launcher's")
    policy = objects.by_kind["NetworkPolicy"]["poprun-emu-metrics"]["spec"]
    (rule,) = policy["ingress"]
    if not matches(policy["podSelector"], launcher) or [p["port"] for p in rule["ports"]] != [served["containerPort"]]:
        found.append("metrics: the network policy does not let Prometheus in")
    return found


def check_survival(objects):
    """Checks that an evicted pod is replaced, and that a new launcher continues from the last checkpoint."""
    args = launcher_args(objects)
    found = []
    if value_of(args, "--resume") != "auto" or "--overwrite" in args:
        found.append("launcher: starts over each time")
    if not value_of(args, "--checkpoint-every") or value_of(args, "--checkpoint-dir"):
        found.append("launcher: takes no checkpoints in its folder of results")
    if objects.launcher["restartPolicy"] != "Never" or objects.job["spec"]["runPolicy"]["backoffLimit"] < 3:
        found.append("launcher: few attempts, or not each with a pod of its own")
    if objects.worker["restartPolicy"] != "OnFailure":
        found.append("worker: stays failed, for the operator replaces only pods that are gone")
    if objects.job["spec"]["runPolicy"]["cleanPodPolicy"] != "Running":
        found.append("job: its workers go on after its end, or what failed is not kept")
    for name, budget in objects.by_kind.get("PodDisruptionBudget", {}).items():
        selected = [pod for pod, template in objects.pods.items()
                    if matches(budget["spec"]["selector"], template["metadata"]["labels"])]
        if selected == ["worker"]:
            # Kubernetes accepts only an absolute minAvailable if the pods' controller is not of a built-in kind.
            if budget["spec"].get("minAvailable") != objects.worker["replicas"] - 1:
                found.append(f"{name}: does not let one worker after the other go")
        elif selected != ["hostio"] or budget["spec"].get("maxUnavailable") != 1:
            found.append(f"{name}: is for {selected}")
    return found + reaper_errors(objects)


def reaper_errors(objects):
    """Checks that the reaper deletes pods that kubelet evicted, as the operator replaces only deleted worker pods."""
    if list(objects.by_kind.get("CronJob", {})) != ["poprun-emu-reaper"]:
        return ["reaper: there is none, and evicted workers stay failed"]
    spec = objects.by_kind["CronJob"]["poprun-emu-reaper"]["spec"]
    found = []
    if spec["schedule"] != "* * * * *" or spec.get("concurrencyPolicy") != "Forbid" or spec.get("suspend"):
        found.append("reaper: does not run every minute, one at a time")
    if spec["jobTemplate"]["spec"].get("activeDeadlineSeconds", 60) >= 60:
        found.append("reaper: one that hangs holds up the next")
    pod = objects.pods["reaper"]["spec"]
    try:
        request = known_reaper_request(json.dumps(pod["containers"][0]))
    except (ValueError, KeyError, OSError) as error:
        return found + [f"reaper: asks for nothing ({error})"]
    wanted = {"fieldSelector": "status.phase=Failed",
              "labelSelector": f"training.kubeflow.org/job-name={objects.job['metadata']['name']},"
                               "training.kubeflow.org/job-role=worker"}
    if request["query"] != wanted:
        found.append(f"reaper: deletes pods of {request['query']}, not {wanted}")
    if (request["method"], request["path"]) != ("DELETE", "/api/v1/namespaces/some-namespace/pods"):
        found.append(f"reaper: asks for {request['method']} {request['path']}")
    if pod.get("restartPolicy") != "Never":
        found.append("reaper: is started again in its place, or refused")
    account = pod["serviceAccountName"]
    namespace = objects.by_kind["ServiceAccount"].get(account, {}).get("metadata", {}).get("namespace", "default")
    rules = [rule for binding in objects.by_kind.get("RoleBinding", {}).values()
             if {"kind": "ServiceAccount", "name": account, "namespace": namespace} in binding["subjects"]
             and binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
                                        "name": binding["roleRef"]["name"]}
             for rule in objects.by_kind.get("Role", {}).get(binding["roleRef"]["name"], {}).get("rules", [])]
    if rules != [{"apiGroups": [""], "resources": ["pods"], "verbs": ["deletecollection"]}]:
        found.append(f"reaper: its account may {rules}, not just delete pods")
    ports = [port["port"] for policy in objects.by_kind["NetworkPolicy"].values()
             if matches(policy["spec"]["podSelector"], objects.pods["reaper"]["metadata"]["labels"])
             for rule in policy["spec"].get("egress", []) for port in rule["ports"] if "to" not in rule]
    if not {443, 6443} <= set(ports):
        found.append(f"reaper: the network policy lets it out to ports {ports}, not to the API server's")
    return found


@functools.lru_cache
def known_reaper_request(container):
    return reaper_request(json.loads(container))


def reaper_request(container, answer=(200, "{}"), scheme="http"):
    """Runs the reaper's command line against the test's server; returns the request, the exit code and the output."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_any(self):
            path, _, query = self.path.partition("?")
            asked.append({"method": self.command, "path": path, "query": dict(urllib.parse.parse_qsl(query)),
                          "token": self.headers["Authorization"], "body": self.headers["Content-Length"] or "0"})
            code, text = answer
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_DELETE = do_GET = do_POST = do_PUT = do_any

        def log_message(self, *_):
            pass

    with tempfile.TemporaryDirectory() as account, http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        account = pathlib.Path(account)
        (account / "namespace").write_text("some-namespace")
        (account / "token").write_text("the-account's-token")
        words = [word.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(account)) for word in container["args"]]
        if scheme == "https":
            for name in ("ca", "other"):
                subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "1",
                                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", account / f"{name}.key",
                                "-out", account / f"{name}.crt"], check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(account / "ca.crt", account / "ca.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        else:
            words = [word.replace("https://", "http://") for word in words]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            environment = {"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                           "KUBERNETES_SERVICE_PORT": str(server.server_port),
                           **{env["name"]: env["value"] for env in container.get("env", [])}}
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20)
        finally:
            server.shutdown()
    if len(asked) != 1:
        raise ValueError(f"{len(asked)} requests, {done.stderr.strip()}")
    return {**asked[0], "code": done.returncode, "said": done.stdout + done.stderr}


def check_processors(objects):
    """Checks that --cpu-isa is set: nodes differ, and a worker must compute the same bits on every node."""
    isa = value_of(launcher_args(objects), "--cpu-isa")
    return [] if isa == "avx2" else [f"launcher: --cpu-isa is {isa}, so a worker cannot move to a node with another processor"]


def check_references(objects):
    found = []
    for pod, template in objects.pods.items():
        spec = template["spec"]
        wanted = [("ServiceAccount", spec["serviceAccountName"])]
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                wanted.append(("ConfigMap", volume["configMap"]["name"]))
            if "persistentVolumeClaim" in volume:
                wanted.append(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
        for container in spec["containers"]:
            wanted += [("Secret", env["valueFrom"]["secretKeyRef"]["name"]) for env in container.get("env", [])
                       if "valueFrom" in env]
            mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
            volumes = {volume["name"] for volume in spec.get("volumes", [])}
            if mounts != volumes:
                found.append(f"{pod}: volumes {sorted(volumes)} and mounts {sorted(mounts)} differ")
        found += [f"{pod}: no {kind} {name} is rendered" for kind, name in wanted if not objects.has(kind, name)]
    return found


def check_files(objects):
    """Checks that the launcher's config comes from the ConfigMap and that its results go to the volume."""
    container = objects.launcher["template"]["spec"]["containers"][0]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in objects.launcher["template"]["spec"]["volumes"]}
    found = []
    config = pathlib.PurePosixPath(container["args"][-1])
    source = volumes.get(mounts.get(str(config.parent)), {}).get("configMap", {}).get("name")
    if config.name not in objects.by_kind["ConfigMap"].get(source, {}).get("data", {}):
        found.append(f"launcher: {config} is in no mounted ConfigMap")
    results = pathlib.PurePosixPath(value_of(container["args"], "--output-dir"))
    if "persistentVolumeClaim" not in volumes.get(mounts.get(str(results.parent)), {}):
        found.append(f"launcher: {results} is not on the results volume")
    return found


def check_security(objects):
    found = []
    for pod, template in objects.pods.items():
        spec = template["spec"]
        context = spec["securityContext"]
        if (not context.get("runAsNonRoot") or context.get("runAsUser") != 1000 or
                context.get("seccompProfile") != {"type": "RuntimeDefault"}):
            found.append(f"{pod}: runs as root or without the runtime's seccomp profile")
        if spec.get("automountServiceAccountToken") is not (pod == "reaper"):
            found.append(f"{pod}: {'lacks' if pod == 'reaper' else 'has'} a service account token")
    for where, container in objects.containers():
        if container["securityContext"] != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}:
            found.append(f"{where}: has privileges or a writable root")
    return found


def check_resources(objects):
    found = []
    for where, container in objects.containers():
        for side in ("requests", "limits"):
            for what, amount in container["resources"][side].items():
                if not QUANTITY.fullmatch(str(amount)):
                    found.append(f"{where}: {side}.{what} is {amount}, not a quantity")
    for pod, template in objects.pods.items():
        for volume in template["spec"].get("volumes", []):
            if "emptyDir" in volume and not QUANTITY.fullmatch(volume["emptyDir"].get("sizeLimit", "")):
                found.append(f"{pod}: the volume {volume['name']} has no limit")
        limits = template["spec"]["containers"][0]["resources"]["limits"]
        if not {"memory", "ephemeral-storage"} <= set(limits):
            found.append(f"{pod}: only {sorted(limits)} are limited")
    for container in objects.worker["template"]["spec"]["containers"]:
        if container["resources"]["requests"] != container["resources"]["limits"]:
            found.append("worker: requests differ from limits")
        if container["resources"]["limits"].get("cpu") != str(objects.job["spec"]["slotsPerWorker"]):
            found.append("worker: cpu is not one per slot")
    shm = [volume for volume in objects.worker["template"]["spec"]["volumes"]
           if volume.get("emptyDir", {}).get("medium") == "Memory"]
    if not shm:
        found.append("worker: no volume in memory for /dev/shm")
    return found


def matches(selector, labels):
    wanted = [(key, [value]) for key, value in selector.get("matchLabels", {}).items()]
    wanted += [(rule["key"], rule["values"]) for rule in selector.get("matchExpressions", [])]
    return all(labels.get(key) in values for key, values in wanted)


def check_network(objects):
    """Checks that pods that must communicate can: the sender's egress and the receiver's ingress allow the port."""
    labels = {pod: template["metadata"]["labels"] for pod, template in objects.pods.items()}
    policies = [policy["spec"] for policy in objects.by_kind["NetworkPolicy"].values()]

    def allowed(direction, side, owner, peer, port):
        rules = [rule for policy in policies if matches(policy["podSelector"], labels[owner])
                 for rule in policy.get(direction, [])]
        return any(any("namespaceSelector" not in who and matches(who["podSelector"], labels[peer]) for who in rule.get(side, []))
                   and ("ports" not in rule or port in [p["port"] for p in rule["ports"]]) for rule in rules)

    found = []
    anything = 40000
    for sender, receiver, port in (("launcher", "worker", 2222), ("launcher", "worker", anything),
                                   ("worker", "launcher", anything), ("worker", "worker", anything),
                                   ("launcher", "hostio", 50051), ("worker", "hostio", 50051)):
        if not (allowed("egress", "to", sender, receiver, port) and allowed("ingress", "from", receiver, sender, port)):
            found.append(f"network: {sender} cannot reach {receiver} on port {port}")
    if allowed("egress", "to", "hostio", "worker", anything) or allowed("ingress", "from", "hostio", "worker", anything):
        found.append("network: the data server is open beyond its port")
    service = objects.by_kind["Service"]["poprun-emu-hostio"]["spec"]["selector"]
    if not matches({"matchLabels": service}, labels["hostio"]) or matches({"matchLabels": service}, labels["worker"]):
        found.append("service: selects pods other than the data server's")
    return found


def check_ssh(objects):
    """Checks that the operator mounts the keys where sshd and ssh look, and that both use the worker's port."""
    def settings(path):
        pairs = [line.split(None, 1) for line in path.read_text().splitlines() if line.strip() and "#" not in line]
        return {key: value.strip() for key, value in pairs}

    server, client = settings(IMAGE / "sshd_config"), settings(IMAGE / "ssh_config")
    worker = objects.worker["template"]["spec"]["containers"][0]
    ports = {server["Port"], client["Port"], str(worker["ports"][0]["containerPort"])}
    found = [] if len(ports) == 1 else [f"ssh: ports {sorted(ports)} of sshd, ssh and the worker differ"]
    if client["StrictHostKeyChecking"] != "yes":
        found.append("ssh: any host key is accepted")
    keys = objects.job["spec"]["sshAuthMountPath"]
    for key, name in (("HostKey", "id_rsa"), ("AuthorizedKeysFile", "authorized_keys")):
        if server[key] != f"{keys}/{name}":
            found.append(f"ssh: {key} {server[key]} is not in sshAuthMountPath {keys}")
    return found


def check_end(objects):
    """Checks that the launcher ends before Kubernetes kills it, and that the workers' grace period is no shorter."""
    grace = {pod: objects.pods[pod]["spec"]["terminationGracePeriodSeconds"] for pod in ("launcher", "worker")}
    limit = int(value_of(launcher_args(objects), "--drain-timeout") or 0)
    found = []
    if not 0 < limit < grace["launcher"]:
        found.append(f"launcher: --drain-timeout {limit} is not within its grace period of {grace['launcher']} s")
    if grace["worker"] < grace["launcher"]:
        found.append(f"worker: its grace period of {grace['worker']} s is shorter than the launcher's")
    if "preStop" not in worker_container(objects).get("lifecycle", {}):
        found.append("worker: ends its replicas at once when it is asked to end")
    return found


CHECKS = [check_end, check_processors, check_fields, check_gang, check_names, check_images, check_ports, check_metrics, check_survival,
          check_references, check_files, check_security, check_resources, check_network, check_ssh]


def problems(documents):
    objects = Objects(documents)
    return [problem for check in CHECKS for problem in check(objects)]


def launcher_args(objects):
    return objects.launcher["template"]["spec"]["containers"][0]["args"]


def worker_container(objects):
    return objects.worker["template"]["spec"]["containers"][0]


def hostio_container(objects):
    return objects.pods["hostio"]["spec"]["containers"][0]


def policy(objects, name):
    return objects.by_kind["NetworkPolicy"][name]["spec"]


def reaper(objects):
    return objects.by_kind["CronJob"]["poprun-emu-reaper"]["spec"]


def reaper_container(objects):
    return objects.pods["reaper"]["spec"]["containers"][0]


def change_script(objects, old, new):
    args = reaper_container(objects)["args"]
    assert old in args[-1]
    args[-1] = args[-1].replace(old, new)


def budget(objects):
    return objects.by_kind["PodDisruptionBudget"]["poprun-emu-replica"]["spec"]


# Each entry is part of a complaint and the change to the objects that provokes it.
PLANTED = [
    ("unknown field readinessProb", lambda o: worker_container(o).update(readinessProb={})),
    ("unknown field prot", lambda o: worker_container(o)["readinessProbe"]["tcpSocket"].update(prot=1)),
    ("within its grace period of 20 s", lambda o: o.pods["launcher"]["spec"].update(terminationGracePeriodSeconds=20)),
    ("period of 30 s is shorter", lambda o: o.pods["worker"]["spec"].update(terminationGracePeriodSeconds=30)),
    ("ends its replicas at once", lambda o: worker_container(o).pop("lifecycle")),
    ("cleanPodPolicy is Runing", lambda o: o.job["spec"]["runPolicy"].update(cleanPodPolicy="Runing")),
    ("restartPolicy is Always", lambda o: o.worker.update(restartPolicy="Always")),
    ("workers have 20 slots", lambda o: o.worker.update(replicas=5)),
    ("replicas is not 1", lambda o: o.launcher.update(replicas=2)),
    ("-worker-3 is not a DNS label", lambda o: o.job["metadata"].update(name="n" * 55)),
    ("poprun-emu:latest is neither tagged", lambda o: worker_container(o).update(image="poprun-emu:latest")),
    ("poprun-emu@sha256:abc is neither tagged", lambda o: worker_container(o).update(image="poprun-emu@sha256:abc")),
    ("has apiVersion batch/v1beta1, not batch/v1", lambda o: o.by_kind["CronJob"]["poprun-emu-reaper"].update(apiVersion="batch/v1beta1")),
    ("has apiVersion kubeflow.org/v1, not", lambda o: o.job.update(apiVersion="kubeflow.org/v1")),
    ("has apiVersion None", lambda o: o.hostio.pop("apiVersion")),
    ("Ingress/web is of a kind that is not checked", lambda o: o.documents.append({"kind": "Ingress", "metadata": {"name": "web"}})),
    ("poprun-emu-hostio.spec lacks selector", lambda o: o.hostio["spec"].pop("selector")),
    ("Role/poprun-emu-reaper.rules[0] lacks verbs", lambda o: o.by_kind["Role"]["poprun-emu-reaper"]["rules"][0].pop("verbs")),
    ("reaper: there is none", lambda o: o.documents.remove(o.by_kind["CronJob"]["poprun-emu-reaper"])),
    ("reaper: does not run every minute", lambda o: reaper(o).update(schedule="0 * * * *")),
    ("reaper: does not run every minute", lambda o: reaper(o).update(suspend=True)),
    ("reaper: one that hangs", lambda o: reaper(o)["jobTemplate"]["spec"].pop("activeDeadlineSeconds")),
    ("reaper: is started again", lambda o: o.pods["reaper"]["spec"].pop("restartPolicy")),
    ("reaper: asks for nothing (0 requests", lambda o: reaper_container(o).update(args=["sh", "-c", "exit 1"])),
    ("reaper: asks for GET", lambda o: change_script(o, "--request DELETE", "--request GET")),
    ("reaper: asks for DELETE /api/v1/pods", lambda o: change_script(o, "namespaces/$(cat $account/namespace)/", "")),
    ("reaper: deletes pods of", lambda o: change_script(o, "status.phase=Failed", "status.phase=Running")),
    ("reaper: deletes pods of", lambda o: change_script(o, "job-role=worker", "job-role=launcher")),
    ("reaper: deletes pods of", lambda o: change_script(o, "$workers", "")),
    ("reaper: deletes pods of", lambda o: reaper_container(o)["env"][0].update(value="another-job")),
    ("reaper: its account may [", lambda o: o.by_kind["Role"]["poprun-emu-reaper"]["rules"][0].update(verbs=["*"])),
    ("reaper: its account may []", lambda o: o.by_kind["RoleBinding"]["poprun-emu-reaper"]["subjects"][0].update(namespace="other")),
    ("reaper: the network policy", lambda o: policy(o, "poprun-emu-reaper")["egress"].clear()),
    ("reaper: lacks a service account token", lambda o: o.pods["reaper"]["spec"].update(automountServiceAccountToken=False)),
    ("worker: has a service account token", lambda o: o.pods["worker"]["spec"].update(automountServiceAccountToken=True)),
    ("probes port 2223", lambda o: worker_container(o)["readinessProbe"]["tcpSocket"].update(port=2223)),
    ("hostio: livenessProbe does not ask", lambda o: hostio_container(o).update(livenessProbe={"tcpSocket": {"port": 50051}})),
    ("hostio: readinessProbe does not ask", lambda o: hostio_container(o)["readinessProbe"]["exec"]["command"].__setitem__(-1, "1")),
    ("speaks gRPC without TLS", lambda o: hostio_container(o).update(livenessProbe={"grpc": {"port": 50051}})),
    ("periodSeconds is 'often', not of type integer",
     lambda o: worker_container(o)["readinessProbe"].update(periodSeconds="often")),
    ("secretKeyRef lacks key",
     lambda o: o.pods["launcher"]["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"].pop("key")),
    ("PodDisruptionBudget/poprun-emu-replica.spec has an unknown field minAvailabel", lambda o: budget(o).update(minAvailabel=1)),
    ("is '80', not of type number", lambda o: o.by_kind["Service"]["poprun-emu-metrics"]["spec"]["ports"][0].update(port="80")),
    ("metrics: ports", lambda o: launcher_args(o).__setitem__(launcher_args(o).index("9464"), "9465")),
    ("metrics: the launcher's annotations", lambda o: o.pods["launcher"]["metadata"]["annotations"].pop("prometheus.io/scrape")),
    ("metrics: the launcher's annotations", lambda o: o.pods["launcher"]["metadata"]["annotations"].pop("prometheus.io/scheme")),
    ("metrics: the probe does not use TLS",
     lambda o: o.pods["launcher"]["spec"]["containers"][0]["livenessProbe"]["httpGet"].pop("scheme")),
    ("metrics: the Service leads", lambda o: o.by_kind["Service"]["poprun-emu-metrics"]["spec"]["ports"][0].update(targetPort="ssh")),
    ("metrics: the Service selects", lambda o: o.by_kind["Service"]["poprun-emu-metrics"]["spec"].update(selector={"a": "b"})),
    ("metrics: are not served", lambda o: launcher_args(o).__setitem__(launcher_args(o).index("0.0.0.0"), "127.0.0.1")),
    ("metrics: the network policy", lambda o: policy(o, "poprun-emu-metrics")["ingress"][0]["ports"][0].update(port=1)),
    ("--cpu-isa is None", lambda o: launcher_args(o).remove("--cpu-isa")),
    ("launcher: starts over", lambda o: launcher_args(o).insert(1, "--overwrite")),
    ("launcher: takes no checkpoints", lambda o: launcher_args(o).remove("--checkpoint-every")),
    ("launcher: few attempts", lambda o: o.job["spec"]["runPolicy"].update(backoffLimit=0)),
    ("worker: stays failed", lambda o: o.worker.update(restartPolicy="Never")),
    ("job: its workers go on", lambda o: o.job["spec"]["runPolicy"].update(cleanPodPolicy="None")),
    ("one worker after the other", lambda o: budget(o).update(minAvailable=4)),
    ("poprun-emu-replica: is for ['launcher', 'worker', 'hostio', 'reaper']",
     lambda o: budget(o)["selector"]["matchLabels"].pop("app.kubernetes.io/component")),
    ("the volume tmp has no limit", lambda o: o.pods["worker"]["spec"]["volumes"][0].update(emptyDir={})),
    ("hostio: only ['ephemeral-storage'] are limited", lambda o: hostio_container(o)["resources"]["limits"].pop("memory")),
    ("--port is 50052", lambda o: hostio_container(o)["args"].__setitem__(4, "50052")),
    ("is not the container's", lambda o: o.by_kind["Service"]["poprun-emu-hostio"]["spec"]["ports"][0].update(port=80)),
    ("is not the service", lambda o: launcher_args(o).__setitem__(launcher_args(o).index("poprun-emu-hostio:50051"), "x:1")),
    ("no Secret poprun-emu-token is rendered",
     lambda o: hostio_container(o)["env"][0]["valueFrom"]["secretKeyRef"].update(name="poprun-emu-token")),
    ("no ServiceAccount other", lambda o: o.pods["worker"]["spec"].update(serviceAccountName="other")),
    ("and mounts ['tmp'] differ", lambda o: worker_container(o)["volumeMounts"].pop()),
    ("is in no mounted ConfigMap", lambda o: launcher_args(o).__setitem__(-1, "/etc/poprun-emu/trian.cfg")),
    ("is not on the results volume", lambda o: launcher_args(o).__setitem__(launcher_args(o).index("/results/train"), "/r/t")),
    ("runs as root", lambda o: o.pods["worker"]["spec"]["securityContext"].update(runAsUser=0)),
    ("writable root", lambda o: worker_container(o)["securityContext"].update(readOnlyRootFilesystem=False)),
    ("is 5cores, not a quantity", lambda o: worker_container(o)["resources"]["limits"].update(cpu="5cores")),
    ("requests differ from limits", lambda o: worker_container(o)["resources"]["requests"].update(cpu="1")),
    ("for /dev/shm", lambda o: o.pods["worker"]["spec"]["volumes"][1]["emptyDir"].pop("medium")),
    ("launcher cannot reach hostio", lambda o: policy(o, "poprun-emu-job")["egress"].pop(1)),
    ("worker cannot reach worker", lambda o: policy(o, "poprun-emu-job")["ingress"].clear()),
    ("open beyond its port", lambda o: policy(o, "poprun-emu-hostio")["ingress"][0].pop("ports")),
    ("selects pods other", lambda o: o.by_kind["Service"]["poprun-emu-hostio"]["spec"].update(selector={"a": "b"})),
    ("ssh: ports", lambda o: worker_container(o)["ports"][0].update(containerPort=22)),
    ("is not in sshAuthMountPath", lambda o: o.job["spec"].update(sshAuthMountPath="/root/.ssh")),
]

def cores(quantity):
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def mebibytes(quantity):
    return float(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]


def overlay_of_the_page(base, digest, token):
    """Returns the kustomization.yaml of README.md, its placeholders replaced by a real folder, digest and token."""
    shown = re.search(r"```yaml\n(# kustomization.yaml\n.*?)```", (BASE.parent / "README.md").read_text(), re.S).group(1)
    for placeholder, value in (("../path/to/deploy/kubernetes/base", base), ("sha256:...", digest),
                               ("the-output-of-openssl-rand-hex-16", token)):
        assert shown.count(placeholder) == 1, f"{placeholder} is in the page {shown.count(placeholder)} times"
        shown = shown.replace(placeholder, value)
    return shown


class Manifests(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.documents = render(BASE)

    def test_the_base_has_no_problem(self):
        self.assertEqual(problems(self.documents), [])

    def test_an_overlay_has_no_problem_but_its_own(self):
        # The replicas in a small cluster share its cores.
        own = {"small": ["worker: requests differ from limits"], "multi-host": []}
        self.assertEqual({path.name for path in OVERLAYS.iterdir()}, set(own))
        for name, expected in own.items():
            with self.subTest(name):
                self.assertEqual(problems(render(OVERLAYS / name)), expected)

    def test_the_overlay_for_several_hosts_keeps_workers_apart(self):
        worker = Objects(render(OVERLAYS / "multi-host")).pods["worker"]
        (apart,) = worker["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(apart["topologyKey"], "kubernetes.io/hostname")
        self.assertTrue(matches(apart["labelSelector"], worker["metadata"]["labels"]))
        self.assertFalse(matches(apart["labelSelector"], Objects(self.documents).pods["launcher"]["metadata"]["labels"]))

    def test_the_overlay_for_small_clusters_fits_one(self):
        objects = Objects(render(OVERLAYS / "small"))
        self.assertEqual(objects.worker["replicas"], 1)
        self.assertEqual(objects.hostio["spec"]["replicas"], 1)
        requests = [container["resources"]["requests"] for _, container in objects.containers()]
        self.assertLessEqual(sum(cores(request["cpu"]) for request in requests), 1.5)
        self.assertLessEqual(sum(mebibytes(request["memory"]) for request in requests), 3072)

    def test_a_token_of_ones_own_replaces_the_one_that_anybody_can_read(self):
        for documents in (self.documents, render(OVERLAYS / "small"), render(OVERLAYS / "multi-host")):
            (secret,) = Objects(documents).by_kind["Secret"].values()
            token = base64.b64decode(secret["data"]["POPRUN_EMU_TOKEN"]).decode()
            self.assertEqual(token, "replace-this-token-in-your-overlay", "a real one in a public file")

    def test_each_planted_error_is_reported(self):
        for complaint, spoil in PLANTED:
            with self.subTest(complaint):
                documents = copy.deepcopy(self.documents)
                spoil(Objects(documents))
                self.assertIn(complaint, "\n".join(problems(documents)))

    def test_every_check_has_a_planted_error(self):
        silent = set(CHECKS)
        for _, spoil in PLANTED:
            documents = copy.deepcopy(self.documents)
            spoil(Objects(documents))
            silent -= {check for check in silent if check(Objects(documents))}
        self.assertEqual([check.__name__ for check in silent], [])

    def test_the_copied_configuration_equals_the_one_at_the_root(self):
        self.assertEqual((BASE / "train.cfg").read_text(), (ROOT / "train.cfg").read_text(),
                         "after a change: cp train.cfg deploy/kubernetes/base/train.cfg")

    def test_the_page_asks_for_an_operator_that_knows_every_field(self):
        # launcherCreationPolicy was added in version 0.5 of the operator, without a new API version.
        (spec,) = [document["spec"] for document in self.documents if document["kind"] == "MPIJob"]
        self.assertIn("launcherCreationPolicy", spec)
        page = (BASE.parent / "README.md").read_text()
        self.assertRegex(page, r"mpi-operator\), 0\.5 or later")

    def test_the_overlay_of_the_page_sets_registry_digest_token_and_configuration(self):
        digest, token = f"sha256:{secrets.token_hex(32)}", secrets.token_hex(16)
        for below in ("base", "overlays/multi-host"):
            with self.subTest(below), tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                shutil.copytree(BASE.parent, folder / "kubernetes")
                (folder / "kustomization.yaml").write_text(overlay_of_the_page(f"kubernetes/{below}", digest, token))
                (folder / "train.cfg").write_text("[training]\nepochs = 1\n")
                documents = render(folder)
                self.assertEqual(problems(documents), [])
                objects = Objects(documents)
                self.assertEqual({container["image"] for _, container in objects.containers()},
                                 {f"registry.example/team/poprun-emu@{digest}"})
                self.assertEqual({document["metadata"].get("namespace") for document in documents}, {"train"})
                (secret,), (config,) = objects.by_kind["Secret"].values(), objects.by_kind["ConfigMap"].values()
                self.assertEqual(base64.b64decode(secret["data"]["POPRUN_EMU_TOKEN"]).decode(), token)
                self.assertEqual(config["data"], {"train.cfg": "[training]\nepochs = 1\n"})

    def test_the_reaper_asks_to_delete_the_failed_workers_of_its_job(self):
        if not shutil.which("openssl"):
            self.skipTest("needs openssl to make a certificate")
        container = self.container("reaper")
        request = reaper_request(container, scheme="https")
        self.assertEqual(request, {
            "method": "DELETE", "path": "/api/v1/namespaces/some-namespace/pods", "body": "0",
            "query": {"fieldSelector": "status.phase=Failed",
                      "labelSelector": "training.kubeflow.org/job-name=poprun-emu,training.kubeflow.org/job-role=worker"},
            "token": "Bearer the-account's-token", "code": 0, "said": ""})

    def test_the_reaper_talks_to_nobody_but_the_api_server(self):
        if not shutil.which("openssl"):
            self.skipTest("needs openssl to make a certificate")
        container = copy.deepcopy(self.container("reaper"))
        container["args"][-1] = container["args"][-1].replace("ca.crt", "other.crt")
        with self.assertRaisesRegex(ValueError, "0 requests, .*certificate"):
            reaper_request(container, scheme="https")

    def test_the_reaper_says_why_it_was_refused(self):
        request = reaper_request(self.container("reaper"), answer=(403, "pods is forbidden"))
        self.assertEqual(request["code"], 1)
        self.assertIn("pods is forbidden", request["said"])

    def test_the_launchers_command_line_is_a_job(self):
        self.need_programs()
        for folder in (BASE, *OVERLAYS.iterdir()):
            with self.subTest(folder.name), tempfile.TemporaryDirectory() as here:
                objects = Objects(render(folder))
                program, *args = launcher_args(objects)
                for option in ("--hostio-address", "--hostfile", "--output-dir"):  # Only a cluster has these.
                    at = args.index(option)
                    del args[at:at + 2]
                here = pathlib.Path(here)
                (config,) = objects.by_kind["ConfigMap"].values()
                (here / "train.cfg").write_text(config["data"][pathlib.PurePosixPath(args.pop()).name])
                # The hostfile has the operator's format.
                job, slots = objects.job["metadata"]["name"], objects.job["spec"]["slotsPerWorker"]
                (here / "hostfile").write_text("".join(f"{job}-worker-{i}.{job}.train.svc slots={slots}\n"
                                                       for i in range(objects.worker["replicas"])))
                done = subprocess.run([BIN / program, "--dry-run", "--print-topology", *args, "--hostfile", "hostfile",
                                       "--output-dir", "results", "train.cfg"], cwd=here, text=True, timeout=60,
                                      capture_output=True, env={**os.environ, "POPRUN_EMU_TOKEN": "c41f6e0b9d7a258390e2b4fd61a7c835"})
                self.assertEqual(done.returncode, 0, done.stderr)
                for i in range(objects.worker["replicas"]):
                    self.assertIn(f"{job}-worker-{i}.{job}.train.svc", done.stdout)

    def test_the_data_servers_command_line_starts_one(self):
        self.need_programs()
        program, *args = self.container("hostio")["args"]
        for option, value in (("--bind", "127.0.0.1"), ("--port", "0")):
            args[args.index(option) + 1] = value
        server = subprocess.Popen([BIN / program, *args], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "POPRUN_EMU_TOKEN": "c41f6e0b9d7a258390e2b4fd61a7c835"})
        try:
            self.assertIn("listening", server.stdout.readline())
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def test_ssh_sends_nothing_to_a_host_with_another_key(self):
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
        if sshd is None:
            self.skipTest("sshd not installed (Debian package openssh-server)")
        os.makedirs("/run/sshd", exist_ok=True)
        with tempfile.TemporaryDirectory() as name, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
            free.close()
            folder = pathlib.Path(name)
            for key in ("id_rsa", "other"):
                subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", folder / key], check=True)
            (folder / "authorized_keys").write_text((folder / "id_rsa.pub").read_text())
            def ours(file):
                return (IMAGE / file).read_text().replace("/home/mpiuser/.ssh", name).replace("2222", port)
            (folder / "ssh_config").write_text(ours("ssh_config").replace("ConnectionAttempts 20", "ConnectionAttempts 5"))
            for key, code in (("id_rsa", 0), ("other", 255)):
                (folder / "sshd_config").write_text(ours("sshd_config").replace(f"{name}/id_rsa", f"{name}/{key}"))
                server = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
                client = subprocess.run(["ssh", "-F", folder / "ssh_config", "-i", folder / "id_rsa", "127.0.0.1", "echo", "in"],
                                        capture_output=True, text=True, timeout=60, check=False)
                server.kill()
                server.wait()
                self.assertEqual(client.returncode, code, client.stderr)
                self.assertEqual(client.stdout, "in\n" if code == 0 else "", client.stderr)

    def need_programs(self):
        if BIN is None:
            self.skipTest("no --bin")

    def container(self, pod):
        return Objects(self.documents).pods[pod]["spec"]["containers"][0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    BIN = options.bin and options.bin.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
