"""Detectors of torchvision's over a torch without CUDA: what stands for the operators of its library."""

import importlib.machinery
import importlib.util

import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_packages import python
from training_runtime.fabric import detection_ops

FASTER_RCNN = """
import training_runtime.fabric.torchvision_ops as ops; ops.install()
import torch, torchvision
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
torch.manual_seed(0)
model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=3, min_size=96, max_size=96)
picture, target = torch.rand(3, 96, 96), {"boxes": torch.tensor([[10.0, 10.0, 50.0, 60.0]]), "labels": torch.tensor([1])}
losses = model([picture], [target])
sum(losses.values()).backward()
print(sorted(losses), all(each.grad is not None for each in model.roi_heads.parameters()))
print(sorted(model.eval()([picture])[0]))
try:
    torchvision.ops.ps_roi_pool(torch.rand(1, 4, 4, 4), torch.zeros(1, 5), 2)
except RuntimeError as error:
    print(str(error).partition(".")[0])
"""


def overlap(one, other) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    both = max(width, 0) * max(height, 0)
    return both / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - both)


@given(
    boxes=st.lists(st.tuples(*[st.integers(0, 9)] * 2, *[st.integers(1, 9)] * 2, st.integers(0, 9)), max_size=30),
    threshold=st.sampled_from([0.0, 0.3, 0.5, 0.9]),
)
def test_of_boxes_that_overlap_the_one_with_the_highest_score_stays(boxes, threshold):
    edges = [(x, y, x + width, y + height) for x, y, width, height, _ in boxes]
    stay = list[int]()
    for one in sorted(range(len(boxes)), key=lambda one: -boxes[one][4]):
        if all(overlap(edges[one], edges[other]) <= threshold for other in stay):
            stay.append(one)
    scores = torch.tensor([float(each[4]) for each in boxes])
    assert detection_ops.nms(torch.tensor(edges).reshape(-1, 4).double(), scores, threshold).tolist() == stay


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [1, 2, -1])
def test_regions_are_what_torchvisions_own_python_makes_of_them_and_so_are_their_gradients(sampling_ratio, aligned):
    spec = importlib.machinery.PathFinder.find_spec("torchvision.ops.roi_align", torchvision.ops.__path__)
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    generator = torch.Generator().manual_seed(7)
    corners = torch.rand(20, 2, generator=generator, dtype=torch.float64) * 50
    sizes = torch.rand(20, 2, generator=generator, dtype=torch.float64) * 40
    rois = torch.cat([torch.randint(2, (20, 1), generator=generator), corners, corners + sizes], dim=1)
    one = torch.rand(2, 3, 9, 13, generator=generator, dtype=torch.float64).requires_grad_()
    other = one.detach().clone().requires_grad_()
    ours = detection_ops.roi_align(one, rois, 0.1, 3, 4, sampling_ratio, aligned)
    expected = theirs._roi_align.__wrapped__(other, rois, 0.1, 3, 4, sampling_ratio, aligned)
    torch.testing.assert_close(ours, expected)
    weights = torch.rand(ours.shape, generator=generator, dtype=torch.float64)
    ours.backward(weights)
    expected.backward(weights)
    torch.testing.assert_close(one.grad, other.grad)


def test_of_a_region_counts_nothing_more_than_a_feature_outside_of_the_picture():
    features, rois = torch.ones(1, 1, 4, 4), torch.tensor([[0.0, -8, -8, 4, 4], [0.0, 1, 1, 3, 3]])
    pooled = detection_ops.roi_align(features, rois, 1.0, 1, 1, 12, False)
    assert pooled.flatten().tolist() == pytest.approx([(5 / 12) ** 2, 1.0])


def test_a_detector_trains_and_an_operator_that_is_not_there_says_so():
    losses, found, *refused = python(FASTER_RCNN).splitlines()
    assert losses == "['loss_box_reg', 'loss_classifier', 'loss_objectness', 'loss_rpn_box_reg'] True"
    assert found == "['boxes', 'labels', 'scores']"
    assert refused == ([] if torchvision.extension._has_ops() else ["Couldn't load custom C++ ops"])
