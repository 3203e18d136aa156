"""The orders, to look at."""

from django.contrib import admin

from .models import Order, Upload


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # Django's class takes no argument at run time
    list_display = ("number", "customer", "country", "item", "quantity", "total", "ordered_on")
    list_filter = ("country", "item")
    search_fields = ("number", "customer")


@admin.register(Upload)
class UploadAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("name", "created_at")
