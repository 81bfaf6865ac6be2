"""PyTorch's collectives over the transport under test: the backend ``mrc`` of torch.distributed,
for programs of ``mrcbed launch``.

    import agents.torch_backend as backend
    backend.init()                      # instead of torch.distributed.init_process_group
    model = torch.nn.parallel.DistributedDataParallel(model)

A thread of each rank owns its communicator, makes PyTorch's calls in order and completes their
futures. ``init("gloo")`` is the baseline: PyTorch's own gloo over the kernel's TCP, on the host's
fabric address (``mrcbed launch --transport tcp``).
"""

from __future__ import annotations

import atexit
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from agents.communicator import Communicator, CommunicatorError, Handle
from agents.process.control import AgentError
from topologies.addressing import inner_address, text

BACKENDS = {"mrc": "mrc", "gloo": "fabric_gloo"}
DROP_S = 0.3
"""Wall time for gloo's threads to let go of the last tensors: otherwise one program in ten is
aborted at its end [ours]."""
PORT = 29500
LONG = timedelta(minutes=30)
"""The longest wait of gloo, wall time: a step of microseconds takes seconds here [ours]."""
_OPS = {"SUM": "sum", "AVG": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}
Begin = Callable[[], tuple[Sequence[Handle], Callable[[], None]]]


@dataclass
class _Call:
    begin: Begin
    future: Future[Any]
    handles: Sequence[Handle] = ()
    end: Callable[[], None] = lambda: None


class _Work(dist.Work):
    """A call under way. The Work that PyTorch itself makes of a future swallows its exception."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self.future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        self.future.wait()
        return True

    def is_completed(self) -> bool:
        return bool(self.future.done())

    def get_future(self) -> Future[Any]:
        return self.future


class _Courier(threading.Thread):
    """The thread that owns this rank's communicator. A refused call, or a lost rank, becomes an
    exception of futures."""

    def __init__(self, comm: Communicator) -> None:
        super().__init__(name="mrcbed", daemon=True)
        self.comm = comm
        self.news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.coming: deque[_Call] = deque()
        self.under_way: list[_Call] = []
        self.ending = False
        atexit.register(self.end)

    def end(self) -> None:
        """End with the program: PyTorch ends badly while a thread uses it."""
        self.ending = True
        os.eventfd_write(self.news, 1)
        self.join(5.0)

    def hand_in(self, begin: Begin, result: Any) -> Any:
        future: Future[Any] = Future()
        self.coming.append(_Call(begin, future))
        os.eventfd_write(self.news, 1)
        return _Work(future.then(lambda over: _value(over, result)))

    def wait_for(self, work: Callable[[], Any]) -> Any:
        results = []

        def begin() -> tuple[Sequence[Handle], Callable[[], None]]:
            results.append(work())
            return (), lambda: None

        self.hand_in(begin, None).wait()
        return results[0]

    def run(self) -> None:
        with torch.no_grad():
            while not self.ending:
                moved = self._post()
                error = None
                try:
                    self.comm.pause(0)
                except CommunicatorError as lost:
                    error = lost
                moved = self._complete(error) or moved
                if not moved:
                    select.select(
                        [self.news, self.comm.fileno()], [], [], None if error is None else 0.05
                    )

    def _post(self) -> bool:
        with suppress(BlockingIOError):
            os.eventfd_read(self.news)
        moved = bool(self.coming)
        while self.coming:
            call = self.coming.popleft()
            try:
                call.handles, call.end = call.begin()
                self.under_way.append(call)
            except Exception as error:  # it is the caller's, whatever it is
                call.future.set_result(error)
        return moved

    def _complete(self, error: CommunicatorError | None) -> bool:
        over = [call for call in self.under_way if all(handle.over for handle in call.handles)]
        lost = [call for call in self.under_way if call not in over] if error is not None else []
        self.under_way = [call for call in self.under_way if call not in over and call not in lost]
        for call in over:
            try:
                call.end()
                call.future.set_result(None)
            except Exception as broken:
                call.future.set_result(broken)
        for call in lost:
            call.future.set_result(error)
        return bool(over or lost)


def _value(over: Future[Any], result: Any) -> Any:
    """Return a future's value. An exception raised here also reaches C++, which waits for
    DistributedDataParallel's futures."""
    outcome = over.value()
    if isinstance(outcome, Exception):
        raise outcome
    return result


class ProcessGroupMRC(dist.ProcessGroup):
    """Names and arguments are PyTorch's (torch/csrc/distributed/c10d/ProcessGroup.hpp)."""

    def __init__(self, courier: _Courier, comm: Communicator, name: str) -> None:
        super().__init__(comm.rank, comm.size)
        self.courier, self.comm, self.name_here = courier, comm, name

    def getBackendName(self) -> str:
        return "mrc"

    @property
    def group_name(self) -> str:
        return self.name_here

    # --- sums -------------------------------------------------------------------------------------

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        return self._reduce(
            tensors, tensors, opts, lambda array, op: self.comm.all_reduce(array, op, wait=False)
        )

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        targets = tensors if self.comm.rank == opts.rootRank else [None] * len(tensors)
        return self._reduce(
            tensors, targets, opts, lambda array, op: self.comm.all_reduce(array, op, wait=False)
        )

    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None
    ) -> Any:
        def parts(array: Any, op: str) -> Handle:
            handle: Handle = self.comm.reduce_scatter(array, op, wait=False)
            return handle

        return self._reduce(
            [torch.stack(list(tensors)) for tensors in inputs], outputs, opts, parts
        )

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter(
            [output], [list(tensor.reshape(self.comm.size, *output.shape))], opts
        )

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        parts = [
            list(tensor.reshape(self.comm.size, *output.shape))
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self.reduce_scatter(outputs, parts, opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _reduce(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor | None],
        opts: Any,
        call: Callable[[Any, str], Handle],
    ) -> Any:
        name = _op(opts)
        divisor = self.comm.size if name == "AVG" else 1

        def begin() -> tuple[Sequence[Handle], Callable[[], None]]:
            handles = [call(_array(source), _OPS[name]) for source in sources]

            def end() -> None:
                for handle, target in zip(handles, targets, strict=True):
                    if target is not None:
                        result = torch.from_numpy(handle.result)
                        _fill(target, result if divisor == 1 else result / divisor)

            return handles, end

        return self.courier.hand_in(begin, list(targets))

    # --- copies -----------------------------------------------------------------------------------

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        pairs = [(tensor, [tensor]) for tensor in tensors]
        return self._move(
            pairs, tensors, lambda array: self.comm.broadcast(array, opts.rootRank, wait=False)
        )

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        return self._move(
            list(zip(inputs, outputs, strict=True)),
            outputs,
            lambda array: self.comm.all_gather(array, wait=False),
        )

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        rows = (
            list(output.reshape(self.comm.size, *tensor.shape)) if output.is_contiguous() else None
        )
        if rows is None:
            raise CommunicatorError("all_gather into a tensor that is not contiguous")
        return self.allgather([rows], [tensor], opts)

    _allgather_base = all_gather_single

    def allgather_into_tensor_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Any:
        rows = [
            list(output.reshape(self.comm.size, *tensor.shape))
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self.allgather(rows, inputs, opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        received = list(enumerate(outputs[0])) if self.comm.rank == opts.rootRank else []
        return self._messages([(opts.rootRank, inputs[0])], received, outputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        sent = list(enumerate(inputs[0])) if self.comm.rank == opts.rootRank else []
        return self._messages(sent, [(opts.rootRank, outputs[0])], outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return self._messages(list(enumerate(inputs)), list(enumerate(outputs)), outputs)

    def alltoall_base(
        self,
        output: Tensor,
        tensor: Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        if not output_sizes and not input_sizes:
            return self._move(
                [(tensor, [output])],
                [output],
                lambda array: self.comm.all_to_all(array, wait=False),
            )
        whole = [tensor.shape[0] // self.comm.size] * self.comm.size
        outputs = list(output.split(list(output_sizes or whole)))
        return self.alltoall(outputs, list(tensor.split(list(input_sizes or whole))), opts)

    all_to_all_single = alltoall_base

    def _move(
        self,
        pairs: Sequence[tuple[Tensor, Sequence[Tensor]]],
        result: Any,
        call: Callable[[Any], Handle],
    ) -> Any:
        def begin() -> tuple[Sequence[Handle], Callable[[], None]]:
            handles = [call(_raw(source)) for source, _ in pairs]

            def end() -> None:
                for handle, (_, targets) in zip(handles, pairs, strict=True):
                    for target, row in zip(
                        targets, handle.result.reshape(len(targets), -1), strict=True
                    ):
                        _fill(target, _like(row, target))

            return handles, end

        return self.courier.hand_in(begin, result)

    # --- messages ---------------------------------------------------------------------------------

    def send(self, tensors: list[Tensor], to: int, tag: int = 0) -> Any:
        _no_tag(tag)
        return self._messages([(to, tensor) for tensor in tensors], [], tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Any:
        _no_tag(tag)
        return self._messages([], [(source, tensor) for tensor in tensors], tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        raise CommunicatorError("recv from any rank is not there: name the source")

    def barrier(self, opts: Any = None) -> Any:
        return self._move(
            [(torch.zeros(1), [torch.zeros(1)])],
            None,
            lambda array: self.comm.broadcast(array, wait=False),
        )

    def _messages(
        self, sent: list[tuple[int, Tensor]], received: list[tuple[int, Tensor]], result: Any
    ) -> Any:
        """The k-th message to a rank meets its k-th receive. What goes to this rank itself is
        copied."""
        mine = self.comm.rank

        def begin() -> tuple[Sequence[Handle], Callable[[], None]]:
            handles = [
                self.comm.send(_raw(tensor), rank, wait=False)
                for rank, tensor in sent
                if rank != mine
            ]
            places = [
                (tensor, np.empty(tensor.nbytes, np.uint8))
                for rank, tensor in received
                if rank != mine
            ]
            others = [rank for rank, _ in received if rank != mine]
            handles += [
                self.comm.recv(place, rank, wait=False)
                for rank, (_, place) in zip(others, places, strict=True)
            ]

            def end() -> None:
                for target, place in places:
                    _fill(target, _like(place, target))
                own = (
                    [tensor for rank, tensor in pairs if rank == mine] for pairs in (received, sent)
                )
                for target, source in zip(*own, strict=True):
                    _fill(target, source)

            return handles, end

        return self.courier.hand_in(begin, result)


def _op(opts: Any) -> str:
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    op = getattr(op, "op", op)  # a ReduceOp holds its kind
    name = str(op).rpartition(".")[2]
    if name not in _OPS:
        raise CommunicatorError(f"reduction {name}: there are {', '.join(_OPS)}")
    return name


def _no_tag(tag: int) -> None:
    if tag:
        raise CommunicatorError(
            f"tag {tag}: messages between two ranks are matched by their order alone"
        )


def _array(tensor: Tensor) -> Any:
    """Return an array to sum. bfloat16, which NumPy lacks, is summed as float32; bool as bytes."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    if tensor.dtype == torch.bool:
        tensor = tensor.contiguous().view(torch.uint8)
    try:
        return tensor.contiguous().numpy()
    except TypeError:
        raise CommunicatorError(f"a sum of {tensor.dtype}: NumPy has no such type") from None


def _raw(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()


def _like(raw: Any, tensor: Tensor) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(raw)).view(tensor.dtype).reshape(tensor.shape)


def _fill(target: Tensor, source: Tensor) -> None:
    target.detach().copy_(source.reshape(target.shape))


# --- starting -------------------------------------------------------------------------------------


_here: list[_Courier] = []  # of this process: PyTorch's groups, too, are the process's


def init(backend: str = "mrc", timeout: timedelta = LONG) -> None:
    """Do ``init_process_group`` for a rank of ``mrcbed launch``. Raises :class:`CommunicatorError`:
    one line."""
    if backend not in BACKENDS:
        raise CommunicatorError(f"backend {backend!r}: there are {', '.join(BACKENDS)}")
    comm = Communicator.open()
    try:
        comm.fileno()
    except AgentError:
        raise CommunicatorError(
            "PyTorch needs a process for each rank; in virtual time ranks are threads: use the "
            "emulated world"
        ) from None
    # Our groups meet over their communicator; gloo's ranks find each other at rank 0, over the
    # fabric.
    store = (
        dist.HashStore()
        if backend == "mrc"
        else dist.TCPStore(_address(comm, 0), PORT, comm.size, comm.rank == 0, timeout)
    )
    if backend == "mrc":
        courier = _Courier(comm)
        courier.start()
        _here.append(courier)
    else:
        atexit.register(time.sleep, DROP_S)
    dist.init_process_group(
        BACKENDS[backend], store=store, rank=comm.rank, world_size=comm.size, timeout=timeout
    )


def _address(comm: Communicator, rank: int) -> str:
    return text(inner_address(comm.hosts[rank]))


def _create_mrc(options: Any, _: Any = None) -> ProcessGroupMRC:
    if not _here:
        raise CommunicatorError("call agents.torch_backend.init() in place of init_process_group")
    courier = _here[0]
    ranks = list(options.global_ranks_in_group) or list(range(courier.comm.size))
    if ranks == list(range(courier.comm.size)):
        return ProcessGroupMRC(courier, courier.comm, options.group_id)
    return ProcessGroupMRC(
        courier, courier.wait_for(lambda: courier.comm.group(ranks)), options.group_id
    )


def _create_gloo(options: Any, _: Any = None) -> Any:
    """Make gloo on the fabric address; its own default would be whatever the machine's name
    resolves to."""
    comm = Communicator.open()
    chosen = dist.ProcessGroupGloo._Options()
    chosen._timeout = options.timeout
    chosen._devices = [dist.ProcessGroupGloo.create_device(hostname=_address(comm, comm.rank))]
    return dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, chosen)


dist.Backend.register_backend("mrc", _create_mrc, extended_api=True, devices=["cpu"])
dist.Backend.register_backend("fabric_gloo", _create_gloo, extended_api=True, devices=["cpu"])
