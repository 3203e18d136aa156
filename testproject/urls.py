"""The admin, where operators live, and the API, which workers and callers use."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("ezgh_workflows_django.urls"))]
