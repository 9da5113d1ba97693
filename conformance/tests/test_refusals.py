"""What stops a run before anything is scored."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from suite import places, preflight, upstream
from suite.machine import run, wait


class Untrusted(unittest.TestCase):
    def refused(self, reason):
        return self.assertRaisesRegex(places.Untrusted, reason)

    def test_what_is_not_built(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ, CARGO_TARGET_DIR=directory):
            with self.refused("release/ferry is not built"):
                places.ferry()
            xtask = Path(directory) / "debug" / "xtask"
            xtask.parent.mkdir()
            xtask.write_text("#!/bin/sh\necho cannot >&2; exit 1\n")
            xtask.chmod(0o755)
            with self.refused("cannot build kube-apiserver, etcd from their Go modules"):
                places.programs("kube-apiserver", "etcd")

    def test_a_node_that_is_not_ready(self):
        class Client:
            def get(self, *_):
                return {"items": [{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}]}

        with mock.patch.object(preflight, "NODE", 0.3), self.refused("a Ready node did not come in 0.3 s"):
            preflight.check(Client(), Path("/nowhere"))

    def test_a_component_that_ends(self):
        with tempfile.TemporaryDirectory() as directory:
            cluster = upstream.Upstream(None, Path(directory))
            cluster.processes["etcd"] = mock.Mock(alive=lambda: False)
            (Path(directory) / "etcd.log").write_text("address already in use")
            with self.refused("etcd ended while a Ready node was waited for: address already in use"):
                cluster.wait("a Ready node", 1, lambda: False)

    def test_a_command_that_fails_is_told_with_its_output(self):
        with self.refused("`sh -c .*` failed: the port is taken"):
            run(["sh", "-c", "echo the port is taken; exit 1"])

    def test_what_does_not_come(self):
        with self.refused("a pod did not come in 0.2 s: no such pod"):
            wait("a pod", 0.2, mock.Mock(side_effect=places.Untrusted("no such pod")))


if __name__ == "__main__":
    unittest.main()
