"""Pictures of what was computed; the only package that imports matplotlib."""

from mha_numpy.draw.colors import fade, group_color, head_color
from mha_numpy.draw.film import shape_film
from mha_numpy.draw.heads import weights_by_head
from mha_numpy.draw.kernel_blocks import kernel_blocks
from mha_numpy.draw.save import Picture, save_figure
from mha_numpy.draw.sharing import sharing_map

__all__ = [
    "Picture", "fade", "group_color", "head_color", "kernel_blocks", "save_figure", "shape_film",
    "sharing_map", "weights_by_head",
]  # fmt: skip
