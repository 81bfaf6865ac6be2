"""PyTorch's DistributedDataParallel over MRC, and over gloo for comparison.

    sudo .venv/bin/mrcbed launch docs/examples/torch_ddp.py
    sudo .venv/bin/mrcbed launch --transport tcp docs/examples/torch_ddp.py gloo

PyTorch comes from its own index: .venv/bin/pip install torch --index-url
https://download.pytorch.org/whl/cpu
"""

import hashlib
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import agents.torch_backend as fabric

fabric.init(sys.argv[1] if len(sys.argv) > 1 else "mrc")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10))
# small buckets: sums begin while gradients are still computed
parallel = DistributedDataParallel(model, bucket_cap_mb=0.03)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)

torch.manual_seed(1 + rank)  # every rank has data of its own
for step in range(10):
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(parallel(inputs), labels)
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 3 == 0:
        print(f"step {step}: loss {loss.item():.3f}", flush=True)

digest = hashlib.sha256(
    b"".join(p.detach().numpy().tobytes() for p in model.parameters())
).hexdigest()[:16]
everyone: list[str] = [""] * size
dist.all_gather_object(everyone, digest)
if rank == 0:
    print(
        f"parameters {digest}, {'the same' if set(everyone) == {digest} else 'NOT the same'} on "
        f"{size} ranks"
    )
dist.destroy_process_group()
