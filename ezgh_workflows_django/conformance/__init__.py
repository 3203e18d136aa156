"""Checks any server of the worker protocol, over HTTP: `python -m ezgh_workflows_django.conformance --url … --key …`.

It is a client like any other: it knows no Django and no database, and judges nothing but what the server answers. Each check is a plain function
in `checks/`, whose docstring is the promise that it looks at; read those to see what a server of your own has to do.
"""

from .runner import Asked, Report, Unusable, run

__all__ = ["Asked", "Report", "Unusable", "run"]
