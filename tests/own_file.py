"""The mark of tests that work on SQLite files of their own: the same whatever database the others use, so once is enough."""

from __future__ import annotations

import pytest
from django.db import connection

on_files_of_its_own = pytest.mark.skipif(connection.vendor != "sqlite", reason="it works on SQLite files of its own, so it is run where SQLite is")
