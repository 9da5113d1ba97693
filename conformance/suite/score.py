"""The score of a run: per group what passed, and the failures with their first error lines."""

import re
from collections import defaultdict
from datetime import datetime, timezone

from .places import CONFORMANCE
from .specs import sig

RESULTS = CONFORMANCE / "results.md"
WIDTH = 200


def rows(chosen, results):
    """Per group: passed, failed, total, seconds; the groups in order, then all of them if they are several."""
    groups = defaultdict(lambda: [0, 0, 0, 0.0])
    for name in chosen:
        for row in (groups[sig(name)], groups["all"]):
            row[2] += 1
            if name in results:
                row[0 if results[name].passed else 1] += 1
                row[3] += results[name].seconds
    total = groups.pop("all")
    return [*sorted(groups.items()), *([("all", total)] if len(groups) > 1 else [])]


def text(chosen, results, lacking):
    """The table and the failures, as they are printed and kept."""
    ran = [results[name] for name in chosen if name in results]
    commits = ", ".join(sorted({result.commit for result in ran})) or "none"
    lines = [f"{'SIG':<24}{'passed':>8}{'failed':>8}{'total':>8}{'minutes':>9}"]
    for name, (passed, failed, total, seconds) in rows(chosen, results):
        lines.append(f"{name:<24}{passed:>8}{failed:>8}{total:>8}{seconds / 60:>9.1f}")
    lines += ["", f"The score rests on {len(ran)} of {len(chosen)} tests, of {commits}."]
    if lacking:
        lines.append(f"The cluster lacks: {', '.join(lacking)}.")
    failures = [result for result in ran if not result.passed]
    if failures:
        lines += ["", "Failed:"]
        lines += [line for failure in failures for line in (failure.name, f"    {failure.error[:WIDTH]}")]
    return "\n".join(lines)


def record(kind, chosen, results):
    """Adds the score to `results.md`; what failed is in `failures-….txt`, each test as it last ended."""
    ran = [results[name] for name in chosen if name in results]
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    commit = ", ".join(sorted({result.commit for result in ran}))
    lines = [f"| {date} | {kind} | {commit} | {name} | {passed} | {passed + failed} | {total} |"
             for name, (passed, failed, total, _) in rows(chosen, results)]
    kept = RESULTS.read_text()
    marker = "<!-- scores end -->"
    RESULTS.write_text(kept.replace(marker, "\n".join(lines) + f"\n{marker}"))
    file = CONFORMANCE / f"failures-{kind}.txt"
    file.write_text(failures(file.read_text() if file.exists() else "", ran))


def failures(before, ran):
    """What failed, by name: tests that ran as they ended now, others as they are known."""
    lines = before.splitlines()
    known = dict(zip(lines[::2], lines[1::2]))
    for result in ran:
        known.pop(result.name, None)
        if not result.passed:
            known[result.name] = f"    {plain(result.error)}"
    return "".join(f"{name}\n{error}\n" for name, error in sorted(known.items()))


def plain(error):
    """An error line without the places of one run."""
    return re.sub(r"/\S*/(kubectl)-\S+|--(?:server|kubeconfig)=\S+ ", lambda found: found.group(1) or "", error)[:WIDTH]
