"""One step of the DNC's memory in NumPy, one sequence, loops spelled out, no regularisation.

Written from the methods section of Graves et al., "Hybrid computing using a neural network with
dynamic external memory", Nature 538 (2016); symbols as there.
"""

from __future__ import annotations

import numpy as np


def sigma(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


def oneplus(x):
    return 1 + np.logaddexp(0, x)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def cosine(u, v):
    lengths = np.linalg.norm(u) * np.linalg.norm(v)
    return 0.0 if lengths == 0 else u @ v / lengths


def content(M, k, beta):
    return softmax(np.array([beta * cosine(k, row) for row in M]))


def allocation(u):
    a = np.zeros_like(u)
    phi = np.argsort(u, kind="stable")
    for j in range(len(u)):
        a[phi[j]] = (1 - u[phi[j]]) * np.prod([u[phi[i]] for i in range(j)])
    return a


def split_interface(xi, W, R):
    sizes = [R * W, R, W, 1, W, W, R, 1, 1, 3 * R]
    assert len(xi) == sum(sizes) == W * R + 3 * W + 5 * R + 3
    kr, br, kw, bw, e, v, f, ga, gw, pi = np.split(xi, np.cumsum(sizes)[:-1])
    pi = np.array([softmax(row) for row in pi.reshape(R, 3)])
    return (
        kr.reshape(R, W), oneplus(br), kw, oneplus(bw)[0], sigma(e), v, sigma(f),
        sigma(ga)[0], sigma(gw)[0], pi,
    )  # fmt: skip


def zero_state(N, W, R):
    return {
        "memory": np.zeros((N, W)),
        "usage": np.zeros(N),
        "precedence": np.zeros(N),
        "link": np.zeros((N, N)),
        "write_weights": np.zeros(N),
        "read_weights": np.zeros((R, N)),
        "reads": np.zeros((R, W)),
    }


def step(xi, state):
    M, u, p, L = (state[name] for name in ("memory", "usage", "precedence", "link"))
    ww, wr = state["write_weights"], state["read_weights"]
    (N, W), R = M.shape, len(wr)
    kr, br, kw, bw, e, v, f, ga, gw, pi = split_interface(xi, W, R)

    psi = np.ones(N)
    for i in range(R):
        psi *= 1 - f[i] * wr[i]
    u = (u + ww - u * ww) * psi
    ww = gw * (ga * allocation(u) + (1 - ga) * content(M, kw, bw))
    M = M * (np.ones((N, W)) - np.outer(ww, e)) + np.outer(ww, v)

    new = np.zeros((N, N))
    for i in range(N):
        for j in range(N):
            if i != j:
                new[i, j] = (1 - ww[i] - ww[j]) * L[i, j] + ww[i] * p[j]
    L = new
    p = (1 - ww.sum()) * p + ww

    weights = np.zeros((R, N))
    for i in range(R):
        backward, forward = L.T @ wr[i], L @ wr[i]
        weights[i] = pi[i, 0] * backward + pi[i, 1] * content(M, kr[i], br[i]) + pi[i, 2] * forward
    return {
        "memory": M, "usage": u, "precedence": p, "link": L, "write_weights": ww,
        "read_weights": weights, "reads": weights @ M,
    }  # fmt: skip
