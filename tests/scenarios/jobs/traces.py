"""Samples of traces, written by ourselves from the formats' descriptions: the only encoder here, so
reader and writer share no code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

AICB = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 2 ga: 1 all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0
5
embedding_layer\t-1\t20000\tALLREDUCE\t262144\t1\tNONE\t0\t10000\tALLREDUCE\t524288\t100
attention_row\t-1\t40000\tREDUCESCATTER\t131072\t60000\tALLGATHER\t131072\t30000\tNONE\t0\t100
mlp_moelayer\t-1\t30000\tALLTOALL_EP\t131072\t30000\tALLTOALL_EP\t131072\t1\tNONE\t0\t100
mlp_row\t-1\t40000\tALLGATHER\t131072\t60000\tREDUCESCATTER\t131072\t30000\tREDUCESCATTER\t524288\t100
grad_norm\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER_DP_EP\t262144\t100
"""  # noqa: E501

PROTOBUF = [
    "070a05302e302e3433080112027067180142290a275b275b7b2270675f6e616d65223a202237222c202272616e6b73223a205b302c20315d7d5d275d650802120463616c"
    "6c18072201632a0101520e0a0969735f6370755f6f70d80100520d0a09636f6d6d5f747970654802520e0a09636f6d6d5f73697a65688020520d0a0770675f6e616d65ea"
    "01013752150a0c696e766f6c7665645f64696de201040a0201003c0803120473656e64180552140a09636f6d6d5f73697a6519000000000000b040520c0a08636f6d6d5f"
    f"6473745{end}520c0a08636f6d6d5f746167781244080412047265637618062a010352150a09636f6d6d5f73697a65a901001000000000000052100a08636f6d6d5f7372"
    f"63bd010{peer}000000520c0a08636f6d6d5f746167480922080512066b65726e656c18042a020204380c520e0a0969735f6370755f6f70d80100"
    for end, peer in (("801", "1"), ("800", "0"))
]
"""Two ranks in hexadecimal, as Google's protobuf writes Chakra's et_def.proto: metadata of
PyTorch's process group 7; an all-gather of it (2) with a control dependency on node 99, which is
not there, and an involved_dim; a send (3), and a receive (4) after it; computing (5). Each size,
peer and tag is of another kind of number: uint64, double, fixed64; uint32, sfixed32; sint32,
int64."""

COMP, SEND, RECV, COLL = 4, 5, 6, 7
ALL_REDUCE, REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = 0, 1, 2, 6, 7, 9


def varint(value: int) -> bytes:
    result = b""
    value &= (1 << 64) - 1
    while value > 0x7F:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def number(field: int, value: int) -> bytes:
    """Left out where it is the default, as protobuf does."""
    return varint(field << 3) + varint(value) if value else b""


def block(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: int | str | bool) -> bytes:
    if isinstance(value, str):
        content = block(29, value.encode())
    else:
        # int64 and int32, both of which are met
        field = 27 if isinstance(value, bool) else 9 if value % 2 else 7
        content = varint(field << 3) + varint(int(value))
    return block(10, block(1, name.encode()) + content)


def node(
    identity: int,
    kind: int,
    data: Iterable[int] = (),
    control: Iterable[int] = (),
    micros: int = 0,
    name: str = "",
    **attributes: int | str | bool,
) -> bytes:
    """Data dependencies packed, control dependencies one by one: both are valid."""
    packed = b"".join(map(varint, data))
    return (
        number(1, identity)
        + block(2, (name or f"n{identity}").encode())
        + number(3, kind)
        + b"".join(varint(4 << 3) + varint(before) for before in control)
        + (block(5, packed) if packed else b"")
        + number(7, micros)
        + b"".join(attribute(key, value) for key, value in attributes.items())
    )


def write(directory: Path, ranks: Iterable[Iterable[bytes]], stem: str = "job") -> Path:
    for rank, nodes in enumerate(ranks):
        messages = [block(1, b"0.0.4"), *nodes]
        (directory / f"{stem}.{rank}.et").write_bytes(
            b"".join(varint(len(message)) + message for message in messages)
        )
    return directory / f"{stem}.0.et"


def job(rank: int, ranks: int) -> list[bytes]:
    """Ids from 0; computing, an overlapped all-reduce in two groups, a ring of messages, a wrapper
    of the host's, a barrier."""
    half = "low" if rank < ranks // 2 else "high"
    return [
        node(0, COMP, micros=20),
        node(1, COLL, data=[0], name="c10d::allreduce", is_cpu_op=True),
        node(
            2,
            COLL,
            data=[1],
            is_cpu_op=False,
            comm_type=ALL_REDUCE,
            comm_size=1 << 18,
            pg_name=half,
        ),
        node(3, COMP, control=[0], micros=30),
        node(4, SEND, data=[3], comm_size=65536, comm_dst=(rank + 1) % ranks, comm_tag=5),
        node(5, RECV, control=[3], comm_size=65536, comm_src=(rank - 1) % ranks, comm_tag=5),
        node(6, COLL, data=[2, 5], comm_type=ALL_GATHER, comm_size=32768),
        node(7, COLL, data=[6], comm_type=REDUCE_SCATTER, comm_size=1 << 17),
        node(8, COLL, data=[7], comm_type=ALL_TO_ALL, comm_size=1 << 17),
        node(9, COLL, data=[8], control=[4], comm_type=BARRIER),
    ]
