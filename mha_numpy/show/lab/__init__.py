"""The notebooks: a copy of one's own to work in, opened in JupyterLab."""

from mha_numpy.show.lab.copies import check_installed, copy_notebooks, notebook_name, open_lab

__all__ = ["check_installed", "copy_notebooks", "notebook_name", "open_lab"]
