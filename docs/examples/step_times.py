"""Step times of each transport, as medians and as a figure of their distribution (CDF).

Made for a notebook: editors that know ``# %%`` run it cell by cell. As a program, without root:

    mrcbed run one-cable --world simulated --out results/lesson-2
    RESULTS=results/lesson-2 python docs/examples/step_times.py
"""

# %% Read
import os

import matplotlib.pyplot as plt

import mrcbed

run = mrcbed.load(os.environ.get("RESULTS", "results/lesson-2"))
steps = run.step_times.assign(us=run.step_times["time_ns"] / 1e3)

# %% How long are the steps of each transport, in µs?
table = steps.groupby("transport")["us"].describe(percentiles=[0.5])[["count", "50%", "max"]]
print(table.round(1).to_string())

# %% Which share of the steps is done within a time?
figure, axes = plt.subplots(figsize=(7, 4))
for name, times in steps.groupby("transport")["us"]:
    axes.ecdf(times, label=f"{name} (n = {len(times)})")
axes.set(xscale="log", xlabel="time of a step [µs]", ylabel="share of steps", title="Step times")
axes.legend(loc="lower right")
figure.savefig("step_times.png", dpi=120, bbox_inches="tight")

# %% Which steps were slow? The fault fell into one of them
print(run.faults[["transport", "fault", "on", "at_ns"]].to_string(index=False))
slowest = steps.loc[steps.groupby("transport")["us"].idxmax()]
print(slowest[["transport", "seed", "step", "us"]].round(1).to_string(index=False))
