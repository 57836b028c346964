"""Which optimizers' steps can be shared out, and who steps what: pure."""

from __future__ import annotations

import pytest
import torch

from training_runtime.elastic.state import elementwise


def test_the_largest_parameters_go_to_who_has_least_to_do():
    assert elementwise.owners((10, 2_000_000, 1_000_000, 900_000, 5), 2) == (1, 0, 1, 1, 1)
    assert elementwise.owners((1, 1, 1), 1) == (0, 0, 0)
    assert set(elementwise.owners((7,) * 9, 3)) == {0, 1, 2}
    assert elementwise.owners((), 4) == ()


@pytest.mark.parametrize("kind", elementwise.KINDS)
def test_torchs_own_optimizers_can_be_shared_out_also_with_a_scheduler(kind):
    optimizer = kind([torch.zeros(3, requires_grad=True)], lr=0.1)
    assert elementwise.reason_against(optimizer) == ""
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert elementwise.reason_against(optimizer) == ""


def test_whatever_else_could_look_at_all_parameters_is_refused():
    def adam(kind=torch.optim.Adam, **given):
        return kind([torch.zeros(3, requires_grad=True)], lr=0.1, **given)

    class Own(torch.optim.Adam):
        pass

    patched, hooked, told = adam(), adam(), adam()
    patched.step = lambda: None
    hooked.register_step_pre_hook(lambda *_: None)
    told.register_step_post_hook(lambda *_: None)
    refused = [adam(Own), adam(torch.optim.Adafactor), patched, hooked, told, adam(foreach=True), adam(fused=True)]
    assert all(elementwise.reason_against(each) for each in refused)


@pytest.mark.parametrize("kind", elementwise.KINDS)
def test_any_share_of_the_parameters_is_stepped_to_the_same_bits(kind):
    """What the whole rests on: torch's loops take each parameter by itself."""

    def made(shares: int):
        generator = torch.Generator().manual_seed(1)
        parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((17, 9), (5,), (), (64, 33), (3, 2, 7))]
        optimizer = kind(parameters, lr=0.01)
        for _ in range(4):
            grads = [torch.randn(p.shape, generator=generator) for p in parameters]
            for rank in range(shares):
                owners = elementwise.owners([p.numel() for p in parameters], shares)
                for p, grad, owner in zip(parameters, grads, owners, strict=True):
                    p.grad = grad if owner == rank else None
                optimizer.step()
        states = [optimizer.state[p] for p in parameters]
        return parameters, [t for state in states for t in state.values() if isinstance(t, torch.Tensor)]

    (parameters, states), (others, their_states) = made(1), made(3)
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
    assert len(states) == len(their_states)
    assert all(torch.equal(a, b) for a, b in zip(states, their_states, strict=True))


CHOICES = [
    *((kind, {}) for kind in elementwise.KINDS),
    (torch.optim.SGD, {"momentum": 0.9}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
]


@pytest.mark.parametrize(("kind", "more"), CHOICES)
def test_the_kind_of_state_that_a_first_step_makes_is_known_before_it(kind, more):
    p = torch.randn(5, 4).t().requires_grad_()  # dense, in another order
    optimizer = kind([p], lr=0.1, **more)
    foreseen = elementwise.first_state(optimizer, optimizer.param_groups[0], p)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    found = optimizer.state[p]
    assert {name: (t.dtype, t.shape, t.stride()) for name, t in foreseen.items()} == {
        name: (t.dtype, t.shape, t.stride()) for name, t in found.items()
    }
    assert all(t.device.type == "meta" for t in foreseen.values())
