"""Write 2 MiB from h0 to h5 over MRC, pull a cable halfway, and see what the transport made of it.

Run as root, from the clone: .venv/bin/python -m testbed.machine.sandbox -- .venv/bin/python
docs/examples/pull_a_cable.py This file plays three parts: without arguments it builds the cluster
and starts itself twice, in h0 and in h5.
"""

from __future__ import annotations

import json
import subprocess
import sys

from mrcbed import (
    MS,
    RECEIVE,
    STATUS_NAMES,
    US,
    Cluster,
    Completion,
    Device,
    Fabric,
    WallClock,
    load_fabric,
    usual_dilation,
)

SIZE = 2 << 20
CABLE = "p0-t0-0:p0-t1-1"


def end(host: int, peer: int) -> None:
    """One end, inside a host. What the two need of each other travels over stdin and stdout, as
    JSON lines."""
    given = json.loads(sys.stdin.readline())
    fabric, clock = Fabric.from_dict(given["fabric"]), WallClock(**given["clock"])
    device = Device(fabric, host, clock, "mrc", {}, seed=7)
    memory = bytearray(SIZE)
    region = device.register(memory)
    mine = device.create_qp(peer)
    device.post_recv(mine["qpn"], wr_id=1)
    print(json.dumps({"qp": mine, "region": list(region)}), flush=True)

    theirs = json.loads(sys.stdin.readline())
    device.connect_qp(mine["qpn"], theirs["qp"])
    begun = clock.now()
    if host == 0:
        va, rkey, _ = theirs["region"]
        data = b"mrc!" * (SIZE // 4)
        device.post_write(mine["qpn"], 1, memoryview(data), va, rkey, imm=42)
    done: list[Completion] = []
    while not done:
        done = device.poll(10 * US)
    took = clock.now() - begun
    until = clock.now() + 40 * US  # answer what the peer still asks
    while clock.now() < until:
        device.poll(10 * US)
    what = done[0]
    report = {
        "kind": "immediate" if what.kind == RECEIVE else "write",
        "imm": what.imm,
        "status": STATUS_NAMES[what.status],
        "us": round(took / US, 1),
        "intact": host == 0 or memory == b"mrc!" * (SIZE // 4),
        "counters": device.counters(),
        "events": [e for e in device.engine.events() if e[1] == "ev"],
    }
    print(json.dumps(report), flush=True)
    device.close()


def main() -> None:
    fabric = load_fabric("demo")
    with Cluster(
        fabric, dilation=usual_dilation("demo"), progress=lambda what, share: None
    ) as cluster:
        ends = []
        for host, peer in ((0, 5), (5, 0)):
            argv = [sys.executable, __file__, str(host), str(peer)]
            process = cluster.net[f"h{host}"].popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            process.stdin.write(
                json.dumps({"fabric": fabric.to_dict(), "clock": cluster.clock.to_dict()}) + "\n"
            )
            process.stdin.flush()
            ends.append(process)
        hello = [process.stdout.readline() for process in ends]
        for process, other in zip(ends, reversed(hello), strict=True):
            process.stdin.write(other)
            process.stdin.flush()

        cluster.clock.sleep(16 * US)
        told = cluster.set_link(CABLE, up=False)
        sender, receiver = (json.loads(process.stdout.readline()) for process in ends)
        cluster.set_link(CABLE, up=True)
        cluster.quiesce(MS)

        print(f"h0: {sender['kind']} {sender['status']} after {sender['us']} µs")
        print(f"h5: {receiver['kind']} {receiver['imm']}, memory intact: {receiver['intact']}")
        for t, _, change in sender["events"]:
            name, later = f"EV {change['ev'] >> 16}:{change['ev'] & 0xFFFF}", (t - told) / US
            print(
                f"h0: {name} {change['from']} -> {change['to']} ({change['cause']}) {later:.1f} "
                "µs after the cable went"
            )
        counted = sender["counters"]
        print(
            f"h0 sent {counted['data_tx']} data packets, {counted['retransmitted']} of them again"
        )
        for row in cluster.counters():
            dropped, flushed = row["drop_link_down_packets"], row["flushed_packets"]
            if dropped or flushed:
                print(
                    f"{row['port']}: {dropped} dropped at the dead cable, {flushed} lost in its "
                    "queue"
                )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        end(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
