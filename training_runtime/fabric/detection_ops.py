"""Two of torchvision's operators for where its library of them cannot be loaded (see `torchvision_ops`).

torchvision has a roi_align in Python of its own, which is made to be compiled: that takes a compiler and a minute or two. Without it 512
regions of 256 channels took six times as long as here, and a gigabyte more.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression. boxes: [N, 4], left, top, right and bottom; scores: [N]. Which stay, [K] of int64, by descending score: each
    that covers no more than `iou_threshold` of its union with every one before it that stays."""
    order = scores.detach().sort(stable=True, descending=True).indices
    sorted_boxes = boxes.detach()[order].cpu()
    edges = (sorted_boxes if boxes.dtype == torch.float64 else sorted_boxes.float()).numpy()
    x1, y1, x2, y2 = (np.ascontiguousarray(edges[:, edge]) for edge in range(4))
    areas = (x2 - x1) * (y2 - y1)
    stays = np.ones(len(areas), dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):  # boxes without an area
        for one in range(len(areas)):
            if stays[one]:
                rest = slice(one + 1, None)
                width = (np.minimum(x2[one], x2[rest]) - np.maximum(x1[one], x1[rest])).clip(0)
                height = (np.minimum(y2[one], y2[rest]) - np.maximum(y1[one], y1[rest])).clip(0)
                both = width * height
                stays[rest] &= ~(both / (areas[one] + areas[rest] - both) > iou_threshold)
    return order[torch.from_numpy(stays).to(order.device)]


def roi_align(
    features: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int, aligned: bool
) -> Tensor:
    """features: [N, C, H, W]; rois: [K, 5], the number of an image and left, top, right and bottom in units of its pixels, of which a
    feature is 1 / `spatial_scale`. Means of bilinear samples, [K, C, pooled_height, pooled_width]; `sampling_ratio` of them each way, or as
    many as there are features where it is not positive. `aligned`: the middle of a feature is half of one from its edge."""
    edges = rois[:, 1:].detach().double() * spatial_scale - (0.5 if aligned else 0.0)
    sizes = edges[:, 2:] - edges[:, :2]
    bins = (sizes if aligned else sizes.clamp(min=1)) / sizes.new_tensor([pooled_width, pooled_height])
    counts = torch.full_like(bins, sampling_ratio) if sampling_ratio > 0 else bins.ceil()
    groups, group_of = torch.cat([rois[:, :1].detach().double(), counts], dim=1).unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
    pooled = features.new_zeros(len(rois), features.shape[1], pooled_height, pooled_width)
    for number, (image, across, down) in enumerate(groups.long().tolist()):
        of_group = (group_of == number).nonzero()[:, 0]
        if across > 0 and down > 0:
            xs = _positions(edges[of_group, 0], bins[of_group, 0], pooled_width, across)
            ys = _positions(edges[of_group, 1], bins[of_group, 1], pooled_height, down)
            sampled = _sampled(features[image : image + 1], xs, ys)
            in_bins = sampled.reshape(len(of_group), -1, pooled_height, down, pooled_width, across)
            pooled = pooled.index_copy(0, of_group, in_bins.mean(dim=(3, 5)))
    return pooled


def _positions(start: Tensor, size: Tensor, bins: int, samples: int) -> Tensor:
    """Of the samples of all bins of each region, in features: [K, bins x samples]."""
    return start[:, None] + (torch.arange(bins * samples, device=start.device) + 0.5) * (size / samples)[:, None]


def _sampled(features: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """features: [1, C, H, W]; xs: [K, X]; ys: [K, Y]. [K, C, Y, X]; nothing where it is more than a feature outside."""
    (height, width), regions = features.shape[2:], len(ys)
    down = _scaled(ys, height)[:, :, None].expand(-1, -1, xs.shape[1])
    across = _scaled(xs, width)[:, None, :].expand(-1, ys.shape[1], -1)
    exact = features if features.dtype in (torch.float32, torch.float64) else features.float()
    grid = torch.stack([across, down], dim=3).flatten(0, 1)[None].to(exact.dtype)
    found = functional.grid_sample(exact, grid, "bilinear", "border", align_corners=True)[0]
    inside = ((ys >= -1) & (ys <= height))[:, :, None] & ((xs >= -1) & (xs <= width))[:, None, :]
    return (found.reshape(len(found), regions, *down.shape[1:]) * inside).transpose(0, 1).to(features.dtype)


def _scaled(positions: Tensor, size: int) -> Tensor:
    """From -1, the first feature's middle, to 1, the last one's."""
    return 2 * positions / max(size - 1, 1) - 1
