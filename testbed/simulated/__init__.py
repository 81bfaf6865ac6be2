"""The second world: the fabric as a discrete-event model in virtual time. No root, no sockets, no processes, no clock.

Same engines, collectives, faults, counters and result files as the emulated world; docs/simulated.md says where the two differ.
"""

import agents as agents  # which decides whether modules run compiled, those of this package too
from testbed.world import EMULATED as EMULATED
from testbed.world import SIMULATED as SIMULATED

WORLDS = (EMULATED, SIMULATED)

_NO_CPU = "no CPU is measured in the simulated world"
_NO_PROCESS = "no process of the simulated world can be late"
_NO_KERNEL = "the simulated world does not compare its ports with a kernel's"
UNMEASURED: dict[str, dict[str, str]] = {
    EMULATED: {"expectations.queue_wait": "on the kernel a packet on the wire counts as waiting, which the model does not have"},
    SIMULATED: {
        "cpu_percent": _NO_CPU, "fidelity.cpu": _NO_CPU, "fidelity.waiting": _NO_CPU,
        **{f"fidelity.lag_{name}_ns": _NO_PROCESS for name in ("mean", "window", "p99", "max")}, "fidelity.clock": _NO_PROCESS,
        "fidelity.quota": _NO_PROCESS,
        "fidelity.wall_suspended_ns": _NO_PROCESS, "fidelity.shaper_late": _NO_KERNEL,
        "fidelity.ports": _NO_KERNEL, "fidelity.queues": _NO_KERNEL, "fidelity.socket_drops": _NO_KERNEL,
    },
}  # fmt: skip
"""World -> figures that a run in it cannot have, as dotted paths in summary.json, each with the reason. A check on such a figure does not
apply."""
