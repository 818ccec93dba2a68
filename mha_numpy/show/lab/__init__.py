"""The notebooks: a copy of one's own to work in, opened in JupyterLab."""

from mha_numpy.show.lab.copies import copy_notebooks, notebook_name
from mha_numpy.show.lab.jupyter import check_installed, open_lab

__all__ = ["check_installed", "copy_notebooks", "notebook_name", "open_lab"]
