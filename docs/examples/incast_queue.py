"""The queue in front of an incast's target, and what the switches did about it: marks, trims,
drops.

Made for a notebook: editors that know ``# %%`` run it cell by cell. As a program, without root:

    mrcbed run incast-victim --world simulated --out results/lesson-3
    RESULTS=results/lesson-3 python docs/examples/incast_queue.py
"""

# %% Read
import os

import matplotlib.pyplot as plt

import mrcbed

run = mrcbed.load(os.environ.get("RESULTS", "results/lesson-3"))

# %% What did the ports of each transport do with packets?
counters = run.counters.assign(drops=run.counters["drop_tail_packets"])
print(counters.groupby("transport")[["marked", "trimmed", "drops"]].sum().to_string())

# %% How long was the longest of the watched queues, at each moment?
queues = run.queues.groupby(["transport", "t_ns"], as_index=False)["bytes"].max()
print(
    (queues.groupby("transport")["bytes"].describe()[["mean", "max"]] / 1e3)
    .round(1)
    .add_suffix(" [kB]")
    .to_string()
)

# %% The same over time
figure, axes = plt.subplots(figsize=(7, 4))
for name, rows in queues.groupby("transport"):
    axes.plot(rows["t_ns"] / 1e3, rows["bytes"] / 1e3, label=name)
axes.set(
    xlabel="time since the flows began [µs]",
    ylabel="longest queue on a last hop [kB]",
    title="Queue of the incast",
)
axes.legend()
figure.savefig("incast_queue.png", dpi=120, bbox_inches="tight")
