"""The HTTP API: `path("", include("ezgh_workflows_django.urls"))` in the project's URLconf. Needs the extra `api`."""

from .api.routes import urlpatterns

app_name = "ezgh_workflows"

__all__ = ["app_name", "urlpatterns"]
