from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Takes the name."
