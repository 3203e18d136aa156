"""How Sphinx builds these pages. Asks no other host for anything."""

from ezgh_workflows_django import __version__

project = "ezgh_workflows_django"
author = "The ezgh_workflows_django authors"
copyright = f"2026, {author}"
version = release = __version__

extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "workers/node_modules"]
nitpicky = True

html_theme = "furo"
html_title = f"ezgh_workflows_django {__version__}"
