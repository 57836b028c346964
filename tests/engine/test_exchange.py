"""Gradients on their way into the rows of a worker that is alone. In one process."""

from __future__ import annotations

import os

import pytest
import torch

from training_runtime.elastic.comm.all_reduce import Exchange, flat_buffers
from training_runtime.elastic.comm.segment import Layout, Segment

ENGINES = 3


def summed(*, passes: int, own_step: bool, create_graph: bool) -> list[torch.Tensor]:
    """The gradients of a small model over ENGINES engines, each of which runs so many backward passes."""
    generator = torch.Generator().manual_seed(3)
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 7), (7,))]
    optimizer = torch.optim.SGD(parameters, 0.1)
    layout = Layout(1, ENGINES, 1, len(parameters), 0, 0, flat_buffers(parameters))
    fd = os.memfd_create("test")
    try:
        exchange = Exchange(Segment(fd, layout, create=True), parameters, torch.device("cpu"), on_device=False, own_step=own_step)
        for engine in range(ENGINES):
            exchange.begin(engine, range(ENGINES), ENGINES)
            for _ in range(passes):
                x = torch.randn(4, 5, generator=generator)
                torch.tanh(x @ parameters[0] + parameters[1]).square().sum().backward(create_graph=create_graph)
            exchange.end(engine, range(ENGINES), ENGINES, scale=0.5 if own_step else None)
        exchange.set_grads(1, ENGINES, optimizer)
        assert not any(p.grad.requires_grad for p in parameters)
        return [p.grad.clone() for p in parameters]
    finally:
        os.close(fd)


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True")
@pytest.mark.parametrize("own_step", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_that_can_be_differentiated_are_summed_as_others_are_and_leave_their_graph_behind(passes, own_step):
    plain, differentiable = (summed(passes=passes, own_step=own_step, create_graph=wanted) for wanted in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(plain, differentiable, strict=True))
    assert all(grad.any() for grad in plain)
