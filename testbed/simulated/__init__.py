"""The second world: the fabric as a discrete-event model in virtual time. No root, no sockets, no processes, no clock.

Same engines, collectives, faults, counters and result files as the emulated world; docs/simulated.md says where the two differ.
"""

import agents as agents  # which decides whether modules run compiled, those of this package too


def breathe() -> None:
    """Let Python look for signals: compiled code does not, and a loop of nothing but such would not hear Ctrl-C. Not compiled itself."""


EMULATED, SIMULATED = WORLDS = ("emulated", "simulated")

_NO_CPU = "no CPU is measured in the simulated world"
_NO_PROCESS = "no process of the simulated world can be late"
_NO_KERNEL = "the simulated world does not compare its ports with a kernel's"
UNMEASURED: dict[str, dict[str, str]] = {
    EMULATED: {},
    SIMULATED: {
        "cpu_percent": _NO_CPU, "fidelity.cpu": _NO_CPU, "fidelity.waiting": _NO_CPU,
        "fidelity.lag_p99_ns": _NO_PROCESS, "fidelity.lag_max_ns": _NO_PROCESS, "fidelity.clock": _NO_PROCESS,
        "fidelity.suspended_ns": _NO_PROCESS, "fidelity.shaper_late": _NO_KERNEL,
        "fidelity.ports": _NO_KERNEL, "fidelity.queues": _NO_KERNEL, "fidelity.socket_drops": _NO_KERNEL,
    },
}  # fmt: skip
"""World -> figures that a run in it cannot have, as dotted paths in summary.json, each with the reason. A check on such a figure does not
apply."""
