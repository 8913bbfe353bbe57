"""rocm-sd for ComfyUI: link or copy this folder into ComfyUI/custom_nodes; rocm_sd_ops must be installed in its Python."""

from .nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
