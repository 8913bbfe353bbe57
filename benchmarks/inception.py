"""Inception v3 up to its pooled features, as FID takes them: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception
Architecture for Computer Vision", 2015, in the form of TensorFlow's network of that year, whose averages leave the border out and
whose last block pools by the largest. For benchmarks/picture_scores.py; weights are the user's."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Conv(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel=1, stride=1, padding=0):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


def average(x):  # TensorFlow's average leaves the border out
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


ROW, COLUMN = dict(kernel=(1, 7), padding=(0, 3)), dict(kernel=(7, 1), padding=(3, 0))


class Block(nn.Module):
    """branches: lists of layers by name, one after the other; pooling begins the last one."""

    def __init__(self, pooling, pool_branch: bool, branches: list[list[tuple]]):
        super().__init__()
        self.pooling, self.pool_branch = pooling, pool_branch
        self.branches = [[name for name, *_ in branch] for branch in branches]
        for branch in branches:
            for name, inputs, outputs, options in branch:
                self.add_module(name, Conv(inputs, outputs, **options))

    def forward(self, x):
        results = []
        for names in self.branches:
            y = x
            for name in names:
                y = getattr(self, name)(y)
            results.append(y)
        pooled = self.pooling(x)
        results.append(self.branch_pool(pooled) if self.pool_branch else pooled)
        return torch.cat(results, dim=1)


def with_pool(block: Block, inputs: int, outputs: int) -> Block:
    block.add_module("branch_pool", Conv(inputs, outputs))
    return block


def block_a(c: int, pool: int) -> Block:
    return with_pool(Block(average, True, [
        [("branch1x1", c, 64, {})],
        [("branch5x5_1", c, 48, {}), ("branch5x5_2", 48, 64, dict(kernel=5, padding=2))],
        [("branch3x3dbl_1", c, 64, {}), ("branch3x3dbl_2", 64, 96, dict(kernel=3, padding=1)),
         ("branch3x3dbl_3", 96, 96, dict(kernel=3, padding=1))]]), c, pool)


def block_b(c: int) -> Block:
    return Block(lambda x: F.max_pool2d(x, 3, stride=2), False, [
        [("branch3x3", c, 384, dict(kernel=3, stride=2))],
        [("branch3x3dbl_1", c, 64, {}), ("branch3x3dbl_2", 64, 96, dict(kernel=3, padding=1)),
         ("branch3x3dbl_3", 96, 96, dict(kernel=3, stride=2))]])


def block_c(c: int, w: int) -> Block:
    return with_pool(Block(average, True, [
        [("branch1x1", c, 192, {})],
        [("branch7x7_1", c, w, {}), ("branch7x7_2", w, w, ROW), ("branch7x7_3", w, 192, COLUMN)],
        [("branch7x7dbl_1", c, w, {}), ("branch7x7dbl_2", w, w, COLUMN), ("branch7x7dbl_3", w, w, ROW),
         ("branch7x7dbl_4", w, w, COLUMN), ("branch7x7dbl_5", w, 192, ROW)]]), c, 192)


def block_d(c: int) -> Block:
    return Block(lambda x: F.max_pool2d(x, 3, stride=2), False, [
        [("branch3x3_1", c, 192, {}), ("branch3x3_2", 192, 320, dict(kernel=3, stride=2))],
        [("branch7x7x3_1", c, 192, {}), ("branch7x7x3_2", 192, 192, ROW), ("branch7x7x3_3", 192, 192, COLUMN),
         ("branch7x7x3_4", 192, 192, dict(kernel=3, stride=2))]])


class BlockE(nn.Module):
    """Two branches end in a pair of layers side by side."""

    def __init__(self, c: int, pooling):
        super().__init__()
        self.pooling = pooling
        flat, tall = dict(kernel=(1, 3), padding=(0, 1)), dict(kernel=(3, 1), padding=(1, 0))
        self.branch1x1 = Conv(c, 320)
        self.branch3x3_1, self.branch3x3_2a, self.branch3x3_2b = Conv(c, 384), Conv(384, 384, **flat), Conv(384, 384, **tall)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(c, 448), Conv(448, 384, 3, padding=1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = Conv(384, 384, **flat), Conv(384, 384, **tall)
        self.branch_pool = Conv(c, 192)

    def forward(self, x):
        three, double = self.branch3x3_1(x), self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        return torch.cat([self.branch1x1(x), self.branch3x3_2a(three), self.branch3x3_2b(three), self.branch3x3dbl_3a(double),
                          self.branch3x3dbl_3b(double), self.branch_pool(self.pooling(x))], dim=1)


class Inception(nn.Module):
    """[N,3,299,299] in -1..1 -> [N,2048]; torchvision's names, so that its state dicts and pytorch-fid's load."""

    def __init__(self):
        super().__init__()
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = Conv(3, 32, 3, 2), Conv(32, 32, 3)
        self.Conv2d_2b_3x3, self.Conv2d_3b_1x1 = Conv(32, 64, 3, padding=1), Conv(64, 80)
        self.Conv2d_4a_3x3 = Conv(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = block_a(192, 32), block_a(256, 64), block_a(288, 64)
        self.Mixed_6a, self.Mixed_6b, self.Mixed_6c = block_b(288), block_c(768, 128), block_c(768, 160)
        self.Mixed_6d, self.Mixed_6e, self.Mixed_7a = block_c(768, 160), block_c(768, 192), block_d(768)
        self.Mixed_7b = BlockE(1280, average)
        # As in the network of 2015, whose last block takes the largest.
        self.Mixed_7c = BlockE(2048, lambda x: F.max_pool2d(x, 3, stride=1, padding=1))

    def forward(self, x):
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, stride=2)))
        x = F.max_pool2d(x, 3, stride=2)
        for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"):
            x = getattr(self, f"Mixed_{name}")(x)
        return x.mean(dim=(2, 3))
