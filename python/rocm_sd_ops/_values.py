"""Whether tensors still hold the values that something of ours was made of.

PyTorch counts in-place writes, but not those through `.data` (merged LoRAs, averaged weights) nor those within
torch.inference_mode(). On the CPU the values themselves are therefore looked at, too: all of a text's states, samples of a weight.
On a GPU reading values back would make the host wait, so samples of all weights are compared once per new text (Fingerprint), and
what is made of a text is not kept where writes to it are not counted.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

import torch
from torch import Tensor, nn

_SAMPLES = 16
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def is_capturing(x: Tensor) -> bool:
    """Whether what is done with x is recorded for a CUDA or HIP graph, whose replays see other values in the same memory."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _sample_view(t: Tensor) -> Optional[Tensor]:
    """Up to 16 elements spread over t's memory, as integers of their size [n]: a view. None for a tensor without memory."""
    if t.device.type == "meta" or t.numel() == 0 or t.element_size() not in _BITS or t.is_complex():
        return None
    extent = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
    step = max(1, extent // _SAMPLES) | 1  # odd: not one column of a matrix
    with torch.no_grad():
        spread = t.detach().as_strided(((extent - 1) // step + 1,), (step,))
        return spread.view(_BITS[t.element_size()])


def _version(t: Tensor) -> Optional[int]:
    return None if t.is_inference() else t._version


class Seen:
    """Tensors as they were: whether they are still the same ones, neither moved nor written to in place. Every call asks, so it
    is the least of Python that can tell. content: on the CPU compare samples of the values, too. Holds no tensor alive."""

    __slots__ = ("_of", "_samples")

    def __init__(self, *tensors: Tensor, content: bool = False) -> None:
        self._of = [(weakref.ref(t), t.data_ptr(), _version(t)) for t in tensors]
        views = [_sample_view(t) if content and t.device.type == "cpu" else None for t in tensors]
        self._samples = [None if v is None else v.clone() for v in views] if content else None

    def holds(self, *tensors: Tensor) -> bool:
        for (of, data, count), t in zip(self._of, tensors):
            if of() is not t or t.data_ptr() != data or (count is not None and t._version != count):
                return False
        if self._samples is not None:
            for kept, t in zip(self._samples, tensors):
                if kept is not None and not torch.equal(kept, _sample_view(t)):  # type: ignore[arg-type]
                    return False
        return True


class SeenText:
    """The text's states that keys and values were made of: on the CPU all values are compared; on a GPU the count of writes is
    asked, so such a text is only kept where writes are counted."""

    __slots__ = ("_seen", "_values")

    def __init__(self, text: Tensor) -> None:
        self._seen = Seen(text)
        self._values = text.detach().clone() if text.device.type == "cpu" else None

    @staticmethod
    def may_keep(text: Tensor) -> bool:
        if text.device.type == "cpu":
            return True
        return not text.is_inference() and not torch.is_inference_mode_enabled() and not is_capturing(text)

    def holds(self, text: Tensor) -> bool:
        if not self.may_keep(text) or not self._seen.holds(text):
            return False
        return self._values is None or torch.equal(self._values, text)


class Fingerprint:
    """Samples of a module's parameters, read in few calls of PyTorch: shows writes that no counter shows, unless they leave nearly
    all values as they were. On a GPU it makes the host wait."""

    def __init__(self) -> None:
        self._key: Optional[list] = None
        self._views: list[list[Tensor]] = []
        self._values: list[Tensor] = []

    @torch.no_grad()
    def changed(self, module: nn.Module) -> bool:
        """Whether a value, or a parameter, is another than at the last call; False at the first."""
        return self.changed_of(list(module.parameters()))

    @torch.no_grad()
    def changed_of(self, parameters: list) -> bool:
        key: list[Any] = [(id(p), p.data_ptr(), p.stride()) for p in parameters]
        if key == self._key:
            now = [torch.cat(views) for views in self._views]
            if all(torch.equal(a, b) for a, b in zip(now, self._values)):
                return False
            self._values = now
            return True
        first, self._key = self._key is None, key
        groups: dict[Any, list[Tensor]] = {}
        for p in parameters:
            view = _sample_view(p)
            if view is not None:
                groups.setdefault((view.device, view.dtype), []).append(view)
        self._views = list(groups.values())
        self._values = [torch.cat(views) for views in self._views]
        return not first
