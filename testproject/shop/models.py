"""What the shop keeps: the files that were uploaded, and the orders that were imported from them."""

from __future__ import annotations

from django.db import models


class Upload(models.Model):
    """One file of orders. The runs that import its rows have it as their subject."""

    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"


class Order(models.Model):
    """One imported order. Its number is unique, so it can't be imported twice; `run` is the run that did it."""

    number = models.CharField(max_length=20, unique=True)
    upload = models.ForeignKey(Upload, on_delete=models.PROTECT, related_name="orders")
    line = models.PositiveIntegerField()
    run = models.UUIDField(unique=True)
    customer = models.CharField(max_length=100)
    email = models.EmailField()
    country = models.CharField(max_length=2)
    item = models.CharField(max_length=20)
    quantity = models.PositiveIntegerField()
    ordered_on = models.DateField()
    net = models.DecimalField(max_digits=12, decimal_places=2)
    vat = models.DecimalField(max_digits=12, decimal_places=2)
    total = models.DecimalField(max_digits=12, decimal_places=2)

    def __str__(self) -> str:
        return self.number
