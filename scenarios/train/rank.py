"""What every rank of ``mrcbed train`` runs (agents.communicator): ``rank.py STEPS SEED COMPUTE_US TEXT``.

A step: gradient of this rank's own sequences, one all-reduce, Adam. Computing takes COMPUTE_US of the network's time, as if a GPU did it:
a rank that was quicker waits, one that was slower says so. It tells what it measured at its end, and rank 0 the beginning of each step.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from agents.communicator import Communicator
from scenarios.train.model import CONTEXT, Adam, initial, loss_and_gradient, tokens_of

SEQUENCES = 4


def main(steps: int, seed: int, compute_s: float, text: bytes) -> None:
    comm = Communicator.open()
    tokens = tokens_of(text)
    parameters = comm.broadcast(initial(seed))
    adam = Adam(parameters)
    algorithm = "ring" if comm.size & comm.size - 1 else "tree"
    rng = np.random.default_rng([seed, comm.rank])
    comm.barrier()
    rows, losses = [], []
    mean = np.zeros_like(parameters)
    for step in range(steps):
        begin = comm.now()
        if comm.rank == 0:
            comm.tell(step=step)
        if step:
            adam.step(mean)
        at = rng.integers(0, len(tokens) - CONTEXT - 1, SEQUENCES)
        batch = np.stack([tokens[a : a + CONTEXT + 1] for a in at])
        loss, gradient = loss_and_gradient(parameters, batch[:, :-1], batch[:, 1:])
        losses.append(loss)
        took = comm.now() - begin
        comm.compute(max(0.0, compute_s - took))
        ready = comm.now()
        mean = comm.all_reduce(gradient, algorithm=algorithm) / np.float32(comm.size)
        rows.append([begin, ready, comm.now()])
    adam.step(mean)
    comm.tell(done={"hash": hashlib.sha256(parameters.tobytes()).hexdigest(), "losses": losses, "steps": rows})
    comm.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) * 1e-6, Path(sys.argv[4]).read_bytes())
