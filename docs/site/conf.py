# SPDX-License-Identifier: Apache-2.0
# Sphinx's settings for what stage.py has laid out. Warnings are errors (cmake/docs.cmake): a link or an anchor that leads nowhere, a page outside the navigation, a public name that is gone.
import os
import re

root = os.environ["ACCO_ROOT"]
with open(os.path.join(root, "include/acco/version.hpp"), encoding="utf-8") as header:
    release = ".".join(re.findall(r"define ACCO_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header.read()))
version = release
project = "acco"
copyright = "the acco authors. Apache License 2.0"
html_title = f"acco {release}"

extensions = ["myst_parser", "breathe"]
breathe_projects = {"acco": os.environ["ACCO_DOXYGEN_XML"]}
breathe_default_project = "acco"
breathe_order_parameters_first = True
breathe_show_include = False
primary_domain = "cpp"
highlight_language = "cpp"
cpp_id_attributes = ["gnu::always_inline"]

myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # blocks with "..." in them

html_theme = "furo"
html_static_path = [os.path.join(root, "docs/site/static")]
html_css_files = ["site.css"]
html_js_files = ["file.js"]
html_favicon = os.path.join(root, "docs/site/static/icon.svg")
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False}
pygments_style = "default"
