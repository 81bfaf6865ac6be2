"""The program of a training job's ranks (agents.communicator): ``gpt_rank.py STEPS SEED COMPUTE_S
RANKS TEXT``.

A step: gradient of this rank's own sequences, one all-reduce, Adam. It takes COMPUTE_S of the
network's time, as if a GPU computed: a quicker rank waits. After each step a rank reports what
scenarios/jobs/rank.py does, and its loss; at the end the SHA-256 of its parameters. Ranks from
RANKS on do nothing.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from agents.communicator import Communicator
from scenarios.jobs.gpt import CONTEXT, Adam, Array, initial, loss_and_gradient, tokens_of

SEQUENCES = 4


def train(comm: Communicator, tokens: Array, steps: int, seed: int, compute_s: float) -> None:
    parameters = comm.broadcast(initial(seed))
    adam = Adam(parameters)
    algorithm = "ring" if comm.size & comm.size - 1 else "tree"
    rng = np.random.default_rng([seed, comm.rank])
    comm.barrier()
    mean = np.zeros_like(parameters)
    for step in range(steps):
        begin = comm.now()
        if step:
            adam.step(mean)
        at = rng.integers(0, len(tokens) - CONTEXT - 1, SEQUENCES)
        batch = np.stack([tokens[a : a + CONTEXT + 1] for a in at])
        loss, gradient = loss_and_gradient(parameters, batch[:, :-1], batch[:, 1:])
        comm.compute(max(0.0, compute_s - (comm.now() - begin)))
        late = comm.now() - begin - compute_s
        mean = comm.all_reduce(gradient, algorithm=algorithm) / np.float32(comm.size)
        comm.tell(step=[0, step, begin, comm.now(), late, 0], loss=loss)
    adam.step(mean)
    comm.tell(digest=hashlib.sha256(parameters.tobytes()).hexdigest())


def main(steps: int, seed: int, compute_s: float, ranks: int, text: str) -> None:
    comm = Communicator.open()
    group = comm if ranks == comm.size else comm.group(range(ranks))
    if group is not None:
        train(group, tokens_of(Path(text).read_bytes()), steps, seed, compute_s)
    comm.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
