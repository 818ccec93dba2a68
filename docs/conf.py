"""Configuration of the website, which ``python docs/build.py`` builds."""

import tomllib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
table = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
SITE, REPOSITORY = table["urls"]["Documentation"], table["urls"]["Source"]

project = "mha_numpy"
project_copyright = author = table["authors"][0]["name"]
language = "en"
extensions = [
    "myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinxext.opengraph",
    "formulas", "terms", "predict", "pages",
]  # fmt: skip
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # notebooks come with their outputs
nb_merge_streams = True
# a folded cell that is not the imports has its own label: notebooks/sync.py
nb_code_prompt_show, nb_code_prompt_hide = "Show the imports", "Hide the imports"
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4
numpydoc_show_class_members = False  # they are documented where they stand
autodoc_default_options = {"exclude-members": "set"}  # matplotlib's, of figures
autodoc_typehints = "none"  # docstrings have them, with shapes
autodoc_member_order = "bysource"
html_math_renderer = "mathml"

ogp_site_url = f"{SITE}/"  # what a link shows where people share it
ogp_image = "_static/social.png"
ogp_image_alt = "mha_numpy: attention in plain NumPy, and the weights of a trained head"
ogp_social_cards = {"enable": False}

html_theme = "pydata_sphinx_theme"
html_title = "mha_numpy"
html_static_path = ["_static", "_build/static"]
templates_path = ["_templates"]
html_favicon = "_static/icon.svg"
html_css_files = ["look.css", "site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_sidebars = {"**": ["sidebar-nav-bs"]}
html_context = {"default_mode": "auto", "repository": REPOSITORY}
html_theme_options = {
    "navbar_start": ["brand"],
    "navbar_end": ["search-button", "theme-switcher"],
    "navbar_persistent": [],
    "header_links_before_dropdown": 5,
    "show_toc_level": 1,
    "back_to_top_button": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["foot"],
    "footer_end": [],
}


def setup(app: Sphinx) -> None:
    """Leave out the fields of named tuples: their class lists them."""
    app.connect("autodoc-skip-member", _is_field)


def _is_field(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Say True for what is left out, and nothing of the rest."""
    return True if str(member.__doc__).startswith("Alias for field number") else None
