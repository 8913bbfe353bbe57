"""rocm-sd for ComfyUI: link or copy this folder into ComfyUI/custom_nodes; rocm_sd_ops must be installed in its Python."""

try:
    import rocm_sd_ops  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "rocm_sd_ops":
        raise
    import sys

    raise ImportError("rocm-sd's nodes are not loaded: the package rocm_sd_ops is not installed in ComfyUI's Python. Install it there "
                      f"from rocm-sd's source folder: {sys.executable} -m pip install . "
                      "(docs/reference/pytorch.md of that folder says more)") from None

from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
