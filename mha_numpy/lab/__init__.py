"""The notebooks: a copy of one's own to work in, opened in JupyterLab."""

from mha_numpy.lab.copies import copy_notebooks
from mha_numpy.lab.jupyter import open_lab

__all__ = ["copy_notebooks", "open_lab"]
