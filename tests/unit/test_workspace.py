"""What an agent finds in its folder."""

from __future__ import annotations

from pathlib import Path

from strop import config
from strop.core import Candidate, Phase, Proposal, Reason, Status, Target, Trial, Verdict
from strop.engine.toy import ToyHolder
from strop.gate.admission import admit
from strop.propose import workspace


def test_the_workspace_holds_source_task_parent_and_failures(tmp_path: Path) -> None:
    description = ToyHolder(config.Engine(model="toy", kind="toy")).description
    elite = Candidate({**workspace.PARENT, "kernel.py": "FAST = True\n"})
    refused = Verdict("c" * 64, Status.FAILED, Reason.NUMERICS, "error: median 9\nof 1.25")
    trials = [Trial(Proposal(n, "agent", "c" * 64, {}), refused, 1.0) for n in range(12)]
    target = Target(0, Phase.DECODE, 40.0, 8.0)
    workspace.write(tmp_path, description, [target], trials, elites=[elite])
    task = (tmp_path / "TASK.md").read_text()
    assert "| decode | 0 | 40.0 | 8.0 | 5.0x |" in task
    assert task.count("- numerics: error: median 9 of 1.25") == 10
    assert "must stay the same" in task
    assert "class Toy" in (tmp_path / "source" / "toy.py").read_text()
    assert "+FAST = True" in (tmp_path / "elites" / f"{elite.id[:12]}.diff").read_text()


def test_the_parent_that_an_agent_starts_from_is_admitted(tmp_path: Path) -> None:
    description = ToyHolder(config.Engine(model="toy", kind="toy")).description
    workspace.write(tmp_path, description, [], [])
    folder = tmp_path / "candidate"
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert admit(Candidate(files), False)
    assert "nothing has passed yet" in (tmp_path / "TASK.md").read_text()
