"""A GPT of some 210,000 parameters in NumPy: forward, backward and Adam, in float32.

It is GPT-2 (Radford et al. 2019) without dropout, embedding and output tied. A step gives the same
bits wherever NumPy and the processor are the same: one thread, fixed shapes, fixed order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LAYERS, WIDTH, HEADS, CONTEXT = 4, 64, 4, 64
VOCABULARY = 96  # printable ASCII, and one token for everything else
RATE, BETA1, BETA2, EPSILON = 3e-3, 0.9, 0.95, 1e-8
CLIP = 1.0  # of a gradient's norm
_GELU = np.float32(np.sqrt(2 / np.pi))
_MASK = np.triu(np.full((CONTEXT, CONTEXT), -1e9, np.float32), 1)


def shapes() -> dict[str, tuple[int, ...]]:
    out: dict[str, tuple[int, ...]] = {"tokens": (VOCABULARY, WIDTH), "places": (CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        out |= {
            f"{layer}.norm1": (2, WIDTH),
            f"{layer}.qkv": (WIDTH, 3 * WIDTH),
            f"{layer}.qkv_bias": (3 * WIDTH,),
            f"{layer}.out": (WIDTH, WIDTH),
            f"{layer}.out_bias": (WIDTH,),
            f"{layer}.norm2": (2, WIDTH),
            f"{layer}.up": (WIDTH, 4 * WIDTH),
            f"{layer}.up_bias": (4 * WIDTH,),
            f"{layer}.down": (4 * WIDTH, WIDTH),
            f"{layer}.down_bias": (WIDTH,),
        }
    return out | {"norm": (2, WIDTH)}


PARAMETERS = sum(int(np.prod(shape)) for shape in shapes().values())


def views(vector: Array) -> dict[str, Array]:
    """``vector``: :data:`PARAMETERS` float32."""
    out, at = {}, 0
    for name, shape in shapes().items():
        size = int(np.prod(shape))
        out[name] = vector[at : at + size].reshape(shape)
        at += size
    return out


def tokens_of(text: bytes) -> Array:
    codes = np.frombuffer(text, np.uint8).astype(np.int64)
    return np.where((codes >= 32) & (codes < 127), codes - 32, VOCABULARY - 1)


def _norm(x: Array, gain: Array) -> tuple[Array, tuple[Array, Array]]:
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    flat = centred * inverse
    return flat * gain[0] + gain[1], (flat, inverse)


def _norm_back(d: Array, gain: Array, kept: tuple[Array, Array], grad: Array) -> Array:
    flat, inverse = kept
    grad[0] += (d * flat).sum((0, 1))
    grad[1] += d.sum((0, 1))
    d = d * gain[0]
    out: Array = inverse * (
        d - d.mean(-1, keepdims=True) - flat * (d * flat).mean(-1, keepdims=True)
    )
    return out


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    out: Array = e / e.sum(-1, keepdims=True)
    return out


def loss_and_gradient(vector: Array, given: Array, wanted: Array) -> tuple[float, Array]:
    """Return mean cross-entropy of the next token, nats, and its gradient. ``given``, ``wanted``:
    (batch, CONTEXT) tokens."""
    p = views(vector)
    batch, length = given.shape
    scale = np.float32((WIDTH // HEADS) ** -0.5)

    def heads(x: Array) -> Array:
        return x.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)

    def joined(x: Array) -> Array:
        return x.transpose(0, 2, 1, 3).reshape(batch, length, -1)

    x = p["tokens"][given] + p["places"][:length]
    kept: list[Any] = []
    for layer in range(LAYERS):
        n1, k1 = _norm(x, p[f"{layer}.norm1"])
        q, k, v = (
            heads(part)
            for part in np.split(n1 @ p[f"{layer}.qkv"] + p[f"{layer}.qkv_bias"], 3, axis=-1)
        )
        weights = _softmax(q @ k.transpose(0, 1, 3, 2) * scale + _MASK[:length, :length])
        mixed = joined(weights @ v)
        x = x + mixed @ p[f"{layer}.out"] + p[f"{layer}.out_bias"]
        n2, k2 = _norm(x, p[f"{layer}.norm2"])
        u = n2 @ p[f"{layer}.up"] + p[f"{layer}.up_bias"]
        bend = np.tanh(_GELU * (u + np.float32(0.044715) * u * u * u))
        active = np.float32(0.5) * u * (1 + bend)
        x = x + active @ p[f"{layer}.down"] + p[f"{layer}.down_bias"]
        kept.append((n1, k1, q, k, v, weights, mixed, n2, k2, u, bend, active))
    last, k_last = _norm(x, p["norm"])
    odds = _softmax(last @ p["tokens"].T)
    rows, columns = np.indices(wanted.shape)
    loss = float(-np.log(odds[rows, columns, wanted]).mean())

    gradient = np.zeros_like(vector)
    g = views(gradient)
    d = odds
    d[rows, columns, wanted] -= 1
    d /= np.float32(wanted.size)
    flat = d.reshape(-1, VOCABULARY)
    g["tokens"] += flat.T @ last.reshape(-1, WIDTH)
    d = _norm_back(d @ p["tokens"], p["norm"], k_last, g["norm"])
    for layer in reversed(range(LAYERS)):
        n1, k1, q, k, v, weights, mixed, n2, k2, u, bend, active = kept[layer]
        flat = d.reshape(-1, WIDTH)
        g[f"{layer}.down"] += active.reshape(-1, 4 * WIDTH).T @ flat
        g[f"{layer}.down_bias"] += flat.sum(0)
        inner = _GELU * (1 + np.float32(3 * 0.044715) * u * u)
        du = (
            (d @ p[f"{layer}.down"].T)
            * np.float32(0.5)
            * (1 + bend + u * (1 - bend * bend) * inner)
        )
        flat = du.reshape(-1, 4 * WIDTH)
        g[f"{layer}.up"] += n2.reshape(-1, WIDTH).T @ flat
        g[f"{layer}.up_bias"] += flat.sum(0)
        d = d + _norm_back(du @ p[f"{layer}.up"].T, p[f"{layer}.norm2"], k2, g[f"{layer}.norm2"])
        flat = d.reshape(-1, WIDTH)
        g[f"{layer}.out"] += mixed.reshape(-1, WIDTH).T @ flat
        g[f"{layer}.out_bias"] += flat.sum(0)
        dm = heads(d @ p[f"{layer}.out"].T)
        dv = weights.transpose(0, 1, 3, 2) @ dm
        dw = dm @ v.transpose(0, 1, 3, 2)
        dw = weights * (dw - (dw * weights).sum(-1, keepdims=True)) * scale
        dqkv = np.concatenate(
            [joined(dw @ k), joined(dw.transpose(0, 1, 3, 2) @ q), joined(dv)], axis=-1
        )
        flat = dqkv.reshape(-1, 3 * WIDTH)
        g[f"{layer}.qkv"] += n1.reshape(-1, WIDTH).T @ flat
        g[f"{layer}.qkv_bias"] += flat.sum(0)
        d = d + _norm_back(dqkv @ p[f"{layer}.qkv"].T, p[f"{layer}.norm1"], k1, g[f"{layer}.norm1"])
    g["places"][:length] += d.sum(0)
    np.add.at(g["tokens"], given, d)
    return loss, gradient


def initial(seed: int) -> Array:
    rng = np.random.default_rng(seed)
    vector = np.zeros(PARAMETERS, np.float32)
    for name, part in views(vector).items():
        if "norm" in name:
            part[0] = 1
        elif not name.endswith("bias"):
            deep = 1 / np.sqrt(2 * LAYERS) if name.endswith(("out", "down")) else 1.0
            part[:] = rng.standard_normal(part.shape) * 0.02 * deep
    return vector


class Adam:
    """Kingma and Ba 2015, with the gradient's norm limited."""

    def __init__(self, parameters: Array) -> None:
        self.parameters = parameters
        self.first, self.second = np.zeros_like(parameters), np.zeros_like(parameters)
        self.steps = 0

    def step(self, gradient: Array) -> None:
        norm = float(np.sqrt((gradient * gradient).sum(dtype=np.float64)))
        gradient = gradient * np.float32(min(1.0, CLIP / max(norm, 1e-12)))
        self.steps += 1
        self.first += np.float32(1 - BETA1) * (gradient - self.first)
        self.second += np.float32(1 - BETA2) * (gradient * gradient - self.second)
        rate = RATE * (1 - BETA2**self.steps) ** 0.5 / (1 - BETA1**self.steps)
        self.parameters -= (
            np.float32(rate) * self.first / (np.sqrt(self.second) + np.float32(EPSILON))
        )
