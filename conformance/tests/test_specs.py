"""What is read from ginkgo's output, and what becomes of it."""

import re
import tempfile
import unittest
from pathlib import Path

from suite import images, places, score, specs
from suite.__main__ import quote
from suite.layout import File, layer

NAME = "[sig-node] ConfigMap should be consumable via environment variable [NodeConformance] [Conformance]"
LABELLED = f"{NAME} [sig-node, NodeConformance, Conformance]"
FAILED = LABELLED.replace("ConfigMap should", "ConfigMap [It] should")


def result(name, passed):
    return specs.Result(name, passed, 60.0, "" if passed else "it broke", "abc")


class Reading(unittest.TestCase):
    def check(self, lines, wanted):
        self.assertEqual(specs.read(lines, {NAME}), wanted)

    def test_ends_of_tests_are_read(self):
        self.check([LABELLED, "/a/b.go:1", "  STEP: something", "• [2.065 seconds]"], (NAME, True, 2.065, ""))
        self.check(["• [2.065 seconds]", LABELLED], (NAME, True, 2.065, ""))
        failed = ["• [FAILED] [125.699 seconds]", FAILED, "/a/b.go:1", "  Timeline >>",
                  "  [FAILED] in [It] - /a/b.go:769 @ 11/16/26 03:40:15.976", "  << Timeline", "",
                  "  [FAILED] service is not reachable", "  In [It] at: /a/b.go:769"]
        self.check(failed, (NAME, False, 125.699, "service is not reachable"))
        self.check(["S [SKIPPED] [0.010 seconds]", FAILED], (NAME, False, 0.01, "skipped"))

    def test_what_is_no_test_is_passed_over(self):
        self.check(["[SynchronizedBeforeSuite]", "/a/e2e.go:69", "[SynchronizedBeforeSuite] PASSED [0.007 seconds]"], None)
        self.check(["• [2.065 seconds]", "[sig-node] another test [Conformance]"], None)
        self.check([], None)

    def test_a_log_is_read_block_by_block(self):
        with tempfile.TemporaryDirectory() as directory:
            log, told = Path(directory) / "log", []
            script = f"printf '%s\\n' '{specs.RULE}' '{LABELLED}' '• [1.5 seconds]' '{specs.RULE}'"
            specs.Phase(["sh", "-c", script], log, [NAME], lambda *found: told.append(found)).run(lambda: None, 60)
            self.assertEqual(told, [(NAME, True, 1.5, "")])

    def test_trouble_ends_a_run(self):
        with tempfile.TemporaryDirectory() as directory:
            phase = specs.Phase(["sleep", "60"], Path(directory) / "log", [NAME], None)
            with self.assertRaisesRegex(places.Untrusted, "the server ended"):
                phase.run(lambda: "the server ended", 60)


    def test_patience_ends_a_run(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertFalse(specs.Phase(["sleep", "60"], Path(directory) / "log", [NAME], None).run(lambda: None, 0.5))


class Choosing(unittest.TestCase):
    NAMES = ["[sig-apps] Job should run", "[sig-api-machinery] Watchers should see [Serial]"]

    def test_focus_skip_and_group_narrow(self):
        choose = lambda *asked: specs.choose(self.NAMES, *asked)
        self.assertEqual(choose("", "", ""), self.NAMES)
        self.assertEqual(choose("Job", "", ""), self.NAMES[:1])
        self.assertEqual(choose("", "Job", ""), self.NAMES[1:])
        self.assertEqual(choose("", "", "apps"), self.NAMES[:1])
        with self.assertRaises(places.Untrusted):
            choose("no such test", "", "")

    def test_a_quoted_name_matches_itself_alone(self):
        for name in [NAME, "a (b) c.d* [e] $x | y"]:
            self.assertTrue(re.fullmatch(quote(name), name))
        self.assertFalse(re.search(quote("a.b"), "axb"))


class Scoring(unittest.TestCase):
    CHOSEN = ["[sig-a] x", "[sig-a] y", "[sig-b] z"]
    RESULTS = {"[sig-a] x": result("[sig-a] x", True), "[sig-a] y": result("[sig-a] y", False)}

    def test_rows_count_per_group_and_in_all(self):
        self.assertEqual(score.rows(self.CHOSEN, self.RESULTS),
                         [("a", [1, 1, 2, 120.0]), ("b", [0, 0, 1, 0.0]), ("all", [1, 1, 3, 120.0])])

    def test_the_text_names_what_it_rests_on_and_what_failed(self):
        text = score.text(self.CHOSEN, self.RESULTS, ["DNS"])
        self.assertIn("rests on 2 of 3 tests, of abc", text)
        self.assertIn("lacks: DNS", text)
        self.assertIn("[sig-a] y\n    it broke", text)
        self.assertNotIn("[sig-a] x\n", text)

    def test_the_last_result_of_a_test_counts(self):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "results.jsonl"
            specs.keep(file, result("t", False))
            specs.keep(file, result("t", True))
            self.assertTrue(specs.kept(file)["t"].passed)


    def test_failures_of_a_part_leave_the_others_known(self):
        before = "[sig-a] x\n    it broke\n[sig-a] y\n    as before\n[sig-c] old\n    too\n"
        ran = [result("[sig-a] x", True), result("[sig-b] z", False)]
        self.assertEqual(score.failures(before, ran),
                         "[sig-a] y\n    as before\n[sig-b] z\n    it broke\n[sig-c] old\n    too\n")

    def test_kept_errors_name_no_place_of_one_run(self):
        error = "error running /a/.cache/x/kubectl-v1.36.4 --server=https://1:6443 --kubeconfig=/tmp/c exec p: exit status 1"
        self.assertEqual(score.plain(error), "error running kubectl exec p: exit status 1")


class Images(unittest.TestCase):
    def test_every_layer_of_the_table_can_be_made(self):
        rows = places.table("images.txt")
        self.assertEqual(len(rows), len({row[0] for row in rows}))
        for row in rows:
            for kind in row[1].split(",") if row[1] != "-" else []:
                self.assertTrue(hasattr(images.Makers, kind.replace("-", "_")), kind)

    def test_an_image_that_the_table_lacks_stops_the_run(self):
        images.check(["registry.k8s.io/pause:3.10.2"])
        with self.assertRaisesRegex(places.Untrusted, "images.txt lacks x/y:1"):
            images.check(["x/y:1"])

    def test_how_an_image_starts(self):
        start = images.start(["entrypoint=/a", "command=b,c_d", "user=1"])
        self.assertEqual((start.entrypoint, start.command, start.user), (["/a"], ["b", "c d"], "1"))

    def test_the_same_files_give_the_same_layer(self):
        with tempfile.TemporaryDirectory() as directory:
            files = [File("a/b", text="c"), File("a/d", link="b"), File("tmp/", mode=0o1777)]
            first, second = (layer(files, Path(directory) / name).read_bytes() for name in ("1", "2"))
            self.assertEqual(first, second)


if __name__ == "__main__":
    unittest.main()
