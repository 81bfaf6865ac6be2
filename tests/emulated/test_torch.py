"""PyTorch over the fabric (agents/torch_backend.py), where PyTorch is installed."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

import pytest

from tests.emulated.command import mrcbed

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="PyTorch is not installed (docs/how/jobs.md, PyTorch)",
    ),
]
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "torch_ddp.py"
COLLECTIVES = Path(__file__).with_name("torch_program.py")


def test_every_collective_groups_and_fsdp2() -> None:
    done = mrcbed("launch", "--fabric", "tiny", COLLECTIVES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if "all right" in line) == [
        f"{k}: all right as rank {k} of mrc" for k in range(4)
    ]


@pytest.mark.parametrize(
    ("transport", "backend"), [("mrc", "mrc"), ("roce", "mrc"), ("tcp", "gloo")]
)
def test_ddp_ends_with_the_same_parameters_on_all_ranks_through_a_fault(
    transport: str, backend: str
) -> None:
    done = mrcbed(
        "launch",
        "--fabric",
        "tiny",
        "--transport",
        transport,
        "--fault",
        "link p0-t0-0:p0-t1-0",
        EXAMPLE,
        backend,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", the same on 4 ranks" in done.stdout


def test_a_rank_that_is_killed_in_a_backward_pass_is_named_to_the_others(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import os, signal
        import torch
        import torch.distributed as dist
        import agents.torch_backend as fabric
        fabric.init()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))
        try:
            while True:
                if dist.get_rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                model(torch.randn(4, 200)).sum().backward()
        except RuntimeError as error:
            print(str(error).splitlines()[0], flush=True)
        """)
    )
    done = mrcbed("launch", "--fabric", "tiny", program)
    assert done.returncode == 1
    named = [
        line
        for line in done.stdout.splitlines()
        if "rank 1 (h1) was lost: its program was ended by SIGKILL" in line
    ]
    assert [line[0] for line in sorted(named)] == ["0", "2", "3"], done.stdout + done.stderr


def test_in_virtual_time_it_says_what_it_needs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import agents.torch_backend as fabric\nfabric.init()\n")
    done = mrcbed("launch", "--world", "simulated", "--fabric", "tiny", program)
    assert (
        done.returncode == 1
        and "PyTorch needs a process for each rank" in done.stderr + done.stdout
    )
