"""Random scripts that cross what users' scripts do, some of them here: exact on any schedule, or refused on all. More with
`python -m benchmarks.exactness --programs`."""

from __future__ import annotations

import pytest

from benchmarks._network import LOOPBACK
from benchmarks._programs import ALL, program
from benchmarks._stage import LIMIT_S, REFUSED, Stage
from benchmarks.exactness import prelude

SEEDS = (3588, 710, 529, 1913, 3380, 611, 117, 369, 187, 216, 1463, 16, 40, 125, 275, 13)
SHARDED_SEEDS = (62, 811, 96, 1508, 445)  # RMSprop, ASGD, NAdam, Rprop and AdamW with amsgrad; what callbacks do to state and parameters
ALONE = {"changes": [(0, (0,))], "faults": []}
# It grows, loses a worker, is suspended, and goes on elsewhere.
MOVED = {
    "changes": [(0, (0,)), (2, (0, 1, 2)), (5, ()), (6, (3, 1))],
    "holds": [3, 6, 7],
    "faults": [{"phase": "backward", "step": 4, "rank": 1}],
}


def test_there_is_a_program_with_each_piece():
    assert {piece.name for piece in ALL} == {name for seed in SEEDS for name in program(seed).features}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_comes_to_the_same_whoever_computes_it(warm, seed):
    stage, made = Stage(warm, warm, LOOPBACK[0], 1, LIMIT_S), program(seed)
    alone, _, _ = stage.play(made.text, (), ALONE)
    moved, generations, _ = stage.play(made.text, (), MOVED)
    assert moved == alone, made.features
    assert len(generations) > 1 or alone[0] == REFUSED


@pytest.mark.parametrize("seed", SHARDED_SEEDS)
def test_a_program_whose_optimizers_step_is_shared_out_comes_to_the_same_as_one_that_does_not(warm, seed):
    stage, made = Stage(warm, warm, LOOPBACK[0], 1, LIMIT_S), program(seed)
    alone, _, _ = stage.play(made.text, (), ALONE)
    faults = [{"phase": phase, "step": 4, "rank": 1} for phase in ("stepped", "taking")]
    moved, generations, _ = stage.play(prelude(seed) + made.text, (), {**MOVED, "faults": faults})
    assert moved == alone, made.features
    assert sum(generation.redone for generation in generations) >= 2, "nobody has died over a step that was shared out"
