"""The ASGI application."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
django_application = get_asgi_application()

from ezgh_workflows_django.api.asgi import bounded  # noqa: E402 - after Django is set up

application = bounded(django_application)
