"""Functions with the signatures of other attention packages, for code that calls those: import them from here by name.
Nothing is installed under the other packages' names."""

from . import flash_attn, sage, xformers

__all__ = ["flash_attn", "sage", "xformers"]
