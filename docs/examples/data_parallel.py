"""Data-parallel training of a linear model: every rank has data of its own, and gradients are
summed over the fabric.

    mrcbed launch --world simulated docs/examples/data_parallel.py
    sudo .venv/bin/mrcbed launch docs/examples/data_parallel.py

Every rank ends with the same parameters, to the bit, whatever fails on the way: try --fault "link
p0-t0-0:p0-t1-0".
"""

import hashlib

import numpy as np

from mrcbed import Communicator

STEPS, FEATURES, ROWS = 20, 4096, 64

comm = Communicator.open()
truth = np.random.default_rng(0).standard_normal(FEATURES).astype(np.float32)
rng = np.random.default_rng(1 + comm.rank)
inputs = rng.standard_normal((ROWS, FEATURES)).astype(np.float32)
targets = inputs @ truth

weights = comm.broadcast(np.zeros(FEATURES, np.float32))
for step in range(STEPS):
    errors = inputs @ weights - targets
    gradient = inputs.T @ errors / ROWS
    comm.compute(20e-6)  # what a GPU would take, in the network's time
    begin = comm.now()
    total = comm.all_reduce(gradient)
    took = comm.now() - begin
    weights -= 0.02 * total / comm.size
    loss = comm.all_reduce(np.array([errors @ errors / ROWS], np.float32))[0] / comm.size
    if comm.rank == 0 and step % 5 == 0:
        print(f"step {step}: loss {loss:.1f}, all-reduce {took * 1e6:.1f} us")

digest = hashlib.sha256(weights.tobytes()).hexdigest()[:16]
everyone = comm.all_gather(np.frombuffer(digest.encode(), np.uint8))
if comm.rank == 0:
    same = all(bytes(row).decode() == digest for row in everyone)
    print(f"parameters {digest}, {'the same' if same else 'NOT the same'} on {comm.size} ranks")
