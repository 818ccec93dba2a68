"""Pictures of what was computed; the only package that imports matplotlib."""

from mha_numpy.draw.arrows import arrows
from mha_numpy.draw.backward_film import backward_film
from mha_numpy.draw.bar_chart import bar_chart
from mha_numpy.draw.colors import fade, group_color, head_color
from mha_numpy.draw.film import shape_film
from mha_numpy.draw.heads import weights_by_head
from mha_numpy.draw.line_chart import line_chart
from mha_numpy.draw.matrices import matrices
from mha_numpy.draw.moving_film import animate
from mha_numpy.draw.origin import origin_film
from mha_numpy.draw.save import Picture, save_figure
from mha_numpy.draw.sharing import sharing_map
from mha_numpy.draw.stepper import HeadReport, Stepper, head_report, stepper, training_page

__all__ = [
    "HeadReport", "Picture", "Stepper", "animate", "arrows", "backward_film", "bar_chart", "fade",
    "group_color", "head_color", "head_report", "line_chart", "matrices", "origin_film",
    "save_figure", "shape_film", "sharing_map", "stepper", "training_page", "weights_by_head",
]  # fmt: skip
