"""The Python client in a running container: exec with output, input and exit codes. Takes a kubeconfig and a pod."""

import sys

from kubernetes import client, config
from kubernetes.stream import stream

NAMESPACE = "default"


def run(core, pod, command, **options):
    options = {"stderr": True, "stdin": False, "stdout": True, "tty": False} | options
    return stream(core.connect_get_namespaced_pod_exec, pod, NAMESPACE, command=command, **options)


core = client.CoreV1Api(config.new_client_from_config(sys.argv[1]))
pod = sys.argv[2]

told = run(core, pod, ["echo", "hello"])
assert told == "hello\n", repr(told)
print("ok output")

shell = run(core, pod, ["sh"], stdin=True, _preload_content=False)
shell.write_stdin("echo $((6 * 7)); echo oops >&2; exit 3\n")
shell.run_forever(timeout=60)
told = (shell.read_stdout(), shell.read_stderr())
assert told == ("42\n", "oops\n"), told
assert shell.returncode == 3, shell.returncode
print("ok shell")
