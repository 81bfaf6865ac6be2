"""A program of test_torch.py: every collective of PyTorch's, groups, objects and FSDP2, each
compared with what it must give."""

import copy

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import agents.torch_backend as fabric

fabric.init()
r, n = dist.get_rank(), dist.get_world_size()
total = sum(range(n))


def full(count, value, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype)


def test_sums():
    base = torch.arange(1001) % 7
    for dtype in (
        torch.float32,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.float16,
        torch.bfloat16,
    ):
        t = base.to(dtype) + r
        dist.all_reduce(t)
        assert torch.equal(t, (base * n + total).to(dtype)), dtype
    for op, value in (
        (dist.ReduceOp.AVG, total / n),
        (dist.ReduceOp.MAX, n - 1),
        (dist.ReduceOp.MIN, 0),
    ):
        t = full(10, r)
        dist.all_reduce(t, op)
        assert t[0] == value, op
    t = torch.arange(12.0).reshape(3, 4).t() + r  # not contiguous
    dist.all_reduce(t)
    assert torch.equal(t, torch.arange(12.0).reshape(3, 4).t() * n + total)
    t = full(5, r)
    dist.reduce(t, 1)
    assert t[0] == (total if r == 1 else r)
    t = torch.empty(3)
    dist.reduce_scatter(t, [full(3, k) for k in range(n)])
    assert t[0] == r * n
    dist.reduce_scatter_tensor(t, torch.arange(3.0 * n))
    assert torch.equal(t, torch.arange(3.0 * r, 3.0 * r + 3) * n)


def test_copies():
    t = full(5, r, torch.bfloat16)
    dist.broadcast(t, 2)
    assert t[0] == 2
    p = torch.nn.Parameter(full(3, r))
    dist.broadcast(p, 1)
    assert p[0].item() == 1
    outs = [torch.empty(3) for _ in range(n)]
    dist.all_gather(outs, full(3, r))
    assert [o[0].item() for o in outs] == list(range(n))
    out = torch.empty(n * 3)
    dist.all_gather_into_tensor(out, full(3, r))
    assert out.tolist() == [float(k) for k in range(n) for _ in range(3)]
    outs = [torch.empty(2) for _ in range(n)] if r == 1 else None
    dist.gather(full(2, r), outs, dst=1)
    assert r != 1 or [o[0].item() for o in outs] == list(range(n))
    t = torch.empty(2)
    dist.scatter(t, [full(2, 5 + k) for k in range(n)] if r == 3 else None, src=3)
    assert t[0] == 5 + r


def test_all_to_all():
    out = torch.empty(2 * n)
    dist.all_to_all_single(out, torch.arange(2.0 * n) + 100 * r)
    assert out.tolist() == [2.0 * r + k + 100 * q for q in range(n) for k in range(2)]
    sizes = [q + 1 for q in range(n)]
    out = torch.empty((r + 1) * n)
    dist.all_to_all_single(out, full(sum(sizes), r), [r + 1] * n, sizes)
    assert out.tolist() == [float(q) for q in range(n) for _ in range(r + 1)]
    outs = [torch.empty(r + 1, dtype=torch.int64) for _ in range(n)]
    dist.all_to_all(outs, [full(q + 1, 10 * r + q, torch.int64) for q in range(n)])
    assert [o[0].item() for o in outs] == [10 * q + r for q in range(n)]


def test_messages_groups_and_objects():
    t = torch.empty(10)
    if r == 0:
        dist.send(torch.arange(10.0), 1)
    if r == 1:
        dist.recv(t, 0)
        assert t[9] == 9
    t = torch.empty(4)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, full(4, r), (r + 1) % n), dist.P2POp(dist.irecv, t, (r - 1) % n)]
    ):
        work.wait()
    assert t[0] == (r - 1) % n
    many = [full(1000, k) for k in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in many]
    for k, (t, work) in enumerate(zip(many, works, strict=True)):
        assert work.wait() and t[999] == k * n
    even, odd = dist.new_group([0, 2]), dist.new_group([3, 1])
    t = full(3, r)
    dist.all_reduce(t, group=even if r % 2 == 0 else odd)
    assert t[0] == (2 if r % 2 == 0 else 4)
    things = [None] * n
    dist.all_gather_object(things, {"rank": r, "pad": "x" * r})
    assert [x["rank"] for x in things] == list(range(n))
    things = [{"a": 1}] if r == 0 else [None]
    dist.broadcast_object_list(things, 0)
    assert things == [{"a": 1}]
    dist.barrier()


def test_what_is_not_there_is_refused():
    for bad, text in (
        (lambda: dist.all_reduce(full(1, 1, torch.int32), dist.ReduceOp.BXOR), "reduction BXOR"),
        (
            lambda: dist.all_reduce(torch.ones(1).to(torch.float8_e4m3fn)),
            "a sum of torch.float8_e4m3fn",
        ),
        (lambda: dist.send(torch.ones(1), (r + 1) % n, tag=7), "tag 7"),
    ):
        try:
            bad()
        except Exception as error:
            assert text in str(error).splitlines()[0], error
        else:
            raise AssertionError(text)


def test_fsdp2_gives_the_parameters_of_one_process():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    plain = copy.deepcopy(model)
    mesh = init_device_mesh("cpu", (n,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    inputs = torch.randn(n, 8, 16)
    optimizer, reference = (
        torch.optim.SGD(model.parameters(), 0.1),
        torch.optim.SGD(plain.parameters(), 0.1),
    )
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs[r]).square().mean().backward()
        optimizer.step()
        reference.zero_grad()
        sum(plain(x).square().mean() for x in inputs).div(n).backward()
        reference.step()
    for sharded, whole in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(sharded.full_tensor(), whole, atol=1e-5)


for test in [value for name, value in list(globals().items()) if name.startswith("test_")]:
    test()
print(f"all right as rank {r} of {dist.get_backend()}", flush=True)
dist.destroy_process_group()
