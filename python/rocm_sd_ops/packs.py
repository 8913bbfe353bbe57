"""Weights that keep the layout that our kernels want, so that only the first call makes it."""

from __future__ import annotations

import weakref

import torch


class Pack:
    """A place for one weight's layout: pass `pack.id` to an operator together with the weight, always the same one.

    Values that change in place are noticed on the CPU; on a GPU call forget() after writing to the weight. The memory is
    given back with the last reference to the Pack.
    """

    def __init__(self) -> None:
        self.id: int = torch.ops.rocm_sd._new_pack()
        self._finalizer = weakref.finalize(self, torch.ops.rocm_sd._drop_pack, self.id)
        self._finalizer.atexit = False

    def forget(self) -> None:
        """Drops the layout; the next call makes it anew, and this Pack has a new id."""
        self._finalizer()
        self.__init__()  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Pack({self.id})"
