"""Pictures of what was computed."""

from mha_numpy.show.pictures.arrows import arrows
from mha_numpy.show.pictures.atlas import precision_atlas
from mha_numpy.show.pictures.bar_chart import bar_chart
from mha_numpy.show.pictures.experiment import experiment_chart
from mha_numpy.show.pictures.film import Film, film
from mha_numpy.show.pictures.heads import weights_by_head
from mha_numpy.show.pictures.line_chart import line_chart
from mha_numpy.show.pictures.matrices import matrices
from mha_numpy.show.pictures.origin import origin_film
from mha_numpy.show.pictures.patches import weights_over_picture
from mha_numpy.show.pictures.save import Picture, save_figure
from mha_numpy.show.pictures.sharing import sharing_map
from mha_numpy.show.pictures.trace_films import backward_film, shape_film
from mha_numpy.show.pictures.wavelengths import wavelength_chart

__all__ = [
    "Film", "Picture", "arrows", "backward_film", "bar_chart", "experiment_chart", "film",
    "line_chart", "matrices", "origin_film", "precision_atlas", "save_figure", "shape_film",
    "sharing_map", "wavelength_chart", "weights_by_head", "weights_over_picture",
]  # fmt: skip
