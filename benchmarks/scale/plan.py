"""The made-up world: nodes, releases, cells, and what each release did to each cell. Everything follows from the seed.

A history of 1,000,000 boots is 8 nodes x 2 engines x 16 recipes x 12 backends x 40 releases x 8 boots. Of the eight boots, five are made in
a round of all cells, and three more take turns with the release before, as a confirming visit does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ENGINES = ("vllm", "sglang")
RECIPES = 16
BACKENDS = 12
NODES = 8
BOOTS = 8
FIRST_ROUND = 5
DAYS_BETWEEN_RELEASES = 14


@dataclass(frozen=True)
class World:
    """Sizes of the made-up history. `cells` = nodes x engines x recipes x backends; every cell has `releases` x BOOTS boots."""

    nodes: int
    recipes: int
    backends: int
    releases: int
    samples_per_boot: int
    seed: int

    @property
    def cells(self) -> int:
        return self.nodes * len(ENGINES) * self.recipes * self.backends

    @property
    def boots(self) -> int:
        return self.cells * self.releases * BOOTS

    def release(self, number: int) -> str:
        """`0.1.0`, `0.2.0`, ... so that text order is not release order."""
        return f"0.{number + 1}.0"


def world_for(boots: int, samples: int, seed: int) -> World:
    """The smallest world of the usual proportions with at least so many boots and samples."""
    nodes, recipes, backends, releases = 1, 2, 3, 4
    limits = {"releases": 40, "backends": BACKENDS, "recipes": RECIPES, "nodes": NODES}
    sizes = {"nodes": nodes, "recipes": recipes, "backends": backends, "releases": releases}
    turn = 0
    while np.prod(list(sizes.values())) * len(ENGINES) * BOOTS < boots:
        name = list(limits)[turn % len(limits)]
        turn += 1
        if sizes[name] < limits[name] or all(sizes[key] >= limits[key] for key in limits):
            sizes[name] += 1
    return World(**sizes, samples_per_boot=max(2, round(samples / boots)), seed=seed)


def levels(world: World) -> Array:
    """Decode tok/s of each cell at each release, shape (cells, releases): steps of 3 to 20 % in 4 % of the releases."""
    chance = np.random.default_rng(world.seed)
    base = np.exp(chance.uniform(np.log(8), np.log(120), size=(world.cells, 1)))
    steps = np.where(
        chance.random((world.cells, world.releases)) < 0.04,
        chance.choice([-1, 1], (world.cells, world.releases)) * chance.uniform(0.03, 0.2, (world.cells, world.releases)),
        0.0,
    )
    return np.asarray(base * np.exp(np.cumsum(steps, axis=1)), dtype=np.float64)


def broken(world: World) -> NDArray[np.bool_]:
    """Whether each cell is broken at each release, shape (cells, releases): breaks in 3 % of the releases, lasts five on average."""
    chance = np.random.default_rng(world.seed + 1)
    state = chance.random(world.cells) < 0.08
    out = np.zeros((world.cells, world.releases), dtype=np.bool_)
    for number in range(world.releases):
        out[:, number] = state
        draw = chance.random(world.cells)
        state = np.where(state, draw > 0.2, draw < 0.03)
    return out
