"""Records what upstream's kube-apiserver answers to the cases of the policies' tests, in place of what they want now.

    python3 record.py https://127.0.0.1:6443 TOKEN AUDIT_LOG

The server must be fresh, with RBAC, a token of somebody named `admin` in `system:masters`, and an audit policy of level Metadata.
Beside it runs its controller manager, or at least the controller `validatingadmissionpolicy-status-controller`. A case that
upstream does not answer (it crashes on some) is left as it is. The files are `policies.jsonl` (a policy, a binding and a request per
line) and `expressions.jsonl` (something to create per line) of crates/server/tests/admission, and `type_checks.jsonl` (a policy per
line) of crates/expressions/tests.
"""

import json
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

GROUP = "/apis/admissionregistration.k8s.io/v1/"
CRATES = Path(__file__).parents[2] / "crates"
POLICIES = CRATES / "server/tests/admission/policies.jsonl"
EXPRESSIONS = CRATES / "server/tests/admission/expressions.jsonl"
TYPE_CHECKS = CRATES / "expressions/tests/type_checks.jsonl"
SERVER, TOKEN, AUDIT_LOG = sys.argv[1:4]
CONTEXT = ssl._create_unverified_context()


def send(method, path, body):
    """The code, the body, the warnings and the audit id of an answer; the code is 0 where there is none."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    try:
        answer = urllib.request.urlopen(request, context=CONTEXT)
    except urllib.error.HTTPError as error:
        answer = error
    except OSError:
        return 0, {}, [], None
    warnings = [text.split(" ", 2)[2].strip('"').replace('\\"', '"') for text in answer.headers.get_all("Warning") or []]
    return answer.status, json.loads(answer.read()), warnings, answer.headers.get("Audit-Id")


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def write(file, cases):
    file.write_text("".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases))


def changed_parts(body):
    parts = {field: body[field] for field in ("data", "spec") if field in body}
    metadata = {field: body["metadata"][field] for field in ("labels", "annotations", "ownerReferences") if field in body["metadata"]}
    return parts | ({"metadata": metadata} if metadata else {})


def told(case, code, body, warnings):
    want = {"code": code}
    if code >= 300:
        causes = [cause.get("message") for cause in (body.get("details") or {}).get("causes", [])]
        want["message"] = re.sub(r'gen-[a-z0-9]{5}"', 'gen-*"', body["message"])
        want["reason"] = body.get("reason")
        want |= {"causes": causes} if len(causes) > 1 else {}
    elif case["kind"] == "mutating":
        want["object"] = changed_parts(body)
    return want | ({"warnings": warnings} if warnings else {})


def record_policies():
    cases = read(POLICIES)
    for case in cases:
        send("POST", "/api/v1/namespaces", {"metadata": {"name": case["namespace"]}})
        for path, body in case["objects"]:
            send("POST", path, body)
        for name in ("policy", "binding"):
            plural = "policies" if name == "policy" else "policybindings"
            code, body, _, _ = send("POST", f"{GROUP}{case['kind']}admission{plural}", case[name])
            assert code == 201, (case["about"], body)
    time.sleep(5)  # upstream looks for new policies every second
    answered = {}
    for case in cases:
        request = case["request"]
        code, body, warnings, audit_id = send(request["method"], request["path"], request["body"])
        if code:
            case["want"] = told(case, code, body, warnings)
            answered[audit_id] = case
    time.sleep(1)
    for event in map(json.loads, open(AUDIT_LOG)):
        notes = {key: value for key, value in (event.get("annotations") or {}).items()
                 if "authorization.k8s.io" not in key and "latency.k8s.io" not in key}
        if event["auditID"] in answered and notes:
            answered[event["auditID"]]["want"]["annotations"] = notes
    write(POLICIES, cases)


def record_expressions():
    cases = read(EXPRESSIONS)
    for case in cases:
        case["code"], body, _, _ = send("POST", case["path"] + "?dryRun=All", case["body"])
        case.pop("causes", None)
        if case["code"] != 201:
            causes = body["details"]["causes"]
            case["causes"] = [[cause.get("field"), cause.get("reason"), cause["message"]] for cause in causes]
    write(EXPRESSIONS, cases)


def record_type_checks():
    cases = read(TYPE_CHECKS)
    for at, case in enumerate(cases):
        body = {"metadata": {"name": f"t{at}"}, "spec": case["spec"]}
        assert send("POST", f"{GROUP}validatingadmissionpolicies", body)[0] == 201, body
    for at, case in enumerate(cases):
        status = {}
        while not status.get("observedGeneration"):
            time.sleep(0.1)
            status = send("GET", f"{GROUP}validatingadmissionpolicies/t{at}", None)[1].get("status", {})
        warnings = status.get("typeChecking", {}).get("expressionWarnings", [])
        # Upstream adds a number to the names of types.
        case["warnings"] = [warning | {"warning": re.sub(r"\b([A-Z][A-Za-z]+)\d{5,}\.", r"\1.", warning["warning"])} for warning in warnings]
    write(TYPE_CHECKS, cases)


if __name__ == "__main__":
    record_expressions()
    record_type_checks()
    record_policies()
