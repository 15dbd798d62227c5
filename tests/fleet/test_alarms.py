"""The alarm rules of deploy/prometheus, judged by promtool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

if shutil.which("promtool") is None:
    pytest.skip("promtool is not installed (Debian's package prometheus has it)", allow_module_level=True)

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES, TESTS = FOLDER / "mpt.rules.yml", FOLDER / "mpt.rules.test.yml"
ALARMS = re.findall(r"- alert: (\w+)", RULES.read_text())


def promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


def test_the_rules_are_rules():
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALARMS)} rules found" in done.stdout


def test_every_alarm_fires_when_it_should_and_not_on_a_healthy_fleet():
    done = promtool("test", "rules", TESTS)
    assert done.returncode == 0, done.stderr
    healthy = re.findall(r"alertname: (\w+)", TESTS.read_text().split("- name:")[1])
    assert sorted(healthy) == sorted(ALARMS)


@pytest.mark.parametrize(
    ("expr", "failed"),
    [("vector(1)", r"name: a healthy fleet,\s+alertname: (\w+)"), ("vector(1) > 2", r"alertname: (\w+)")],
    ids=["always", "never"],
)
def test_alarms_that_always_or_never_fire_are_found_out(tmp_path, expr, failed):
    changed, found = re.subn(r" expr: .*\n(?: {10}.*\n)*", f" expr: {expr}\n", RULES.read_text())
    assert found == len(ALARMS)
    (tmp_path / RULES.name).write_text(changed)
    shutil.copy(TESTS, tmp_path)
    assert promtool("check", "rules", tmp_path / RULES.name).returncode == 0
    done = promtool("test", "rules", tmp_path / TESTS.name)
    assert done.returncode != 0
    assert set(re.findall(failed, done.stdout + done.stderr)) == set(ALARMS)


def test_every_alarm_says_how_bad_it_is_and_what_has_happened():
    for rule in RULES.read_text().split("- alert: ")[1:]:
        assert re.search(r"severity: (critical|warning|info)\n", rule), rule
        assert "summary: " in rule, rule
        assert "description: " in rule, rule
