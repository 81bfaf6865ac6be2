"""What happened to each path of MRC after a cable was cut: when it was given up, why, and when it
came back.

Made for a notebook: editors that know ``# %%`` run it cell by cell. As a program, without root:

    mrcbed run smoke --world simulated --out results/smoke
    RESULTS=results/smoke python docs/examples/paths_after_a_cut.py
"""

# %% Read
import os

import matplotlib.pyplot as plt

import mrcbed

run = mrcbed.load(os.environ.get("RESULTS", "results/smoke"))
cuts = run.faults[(run.faults["transport"] == "mrc") & (run.faults["kind"] == "link")]
fault = cuts.iloc[0]
print(
    f"{fault['fault']}: {fault['on']} at {fault['at_ns'] / 1e3:.1f} µs, mended at "
    f"{fault['healed_ns'] / 1e3:.1f} µs"
)

# %% Every change of a path's state, in µs since the cut
paths = run.paths[run.paths["transport"] == "mrc"]
paths = paths.assign(us=(paths["t_ns"] - fault["at_ns"]) / 1e3)
paths = paths.assign(path=[f"h{p.host}>h{p.peer} {p.plane}:{p.uplink}" for p in paths.itertuples()])
print(paths[["us", "path", "from", "to", "cause"]].round(1).to_string(index=False))

# %% How long was each path out of use?
given_up = paths[paths["to"] == "ASSUMED_BAD"].groupby("path")["us"].min()
back = paths[(paths["from"] == "ASSUMED_BAD") & (paths["to"] == "GOOD")].groupby("path")["us"].max()
out = given_up.to_frame("given up").join(back.rename("back"))
print(out.round(1).to_string())

# %% The same as a figure
end = run.steps["end_ns"].max() / 1e3 - fault["at_ns"] / 1e3
figure, axes = plt.subplots(figsize=(7, 0.5 + 0.4 * max(len(out), 1)))
for row, (_, times) in enumerate(out.iterrows()):
    until = end if times.isna()["back"] else times["back"]
    axes.barh(row, until - times["given up"], left=times["given up"], color="tab:red")
axes.axvline(0, color="black", linestyle=":", label="cut")
axes.set(
    xlabel="time since the cut [µs]",
    title="Paths out of use",
    yticks=range(len(out)),
    yticklabels=out.index,
)
axes.legend(loc="upper left")
figure.savefig("paths_after_a_cut.png", dpi=120, bbox_inches="tight")
