"""The testing kit users get: the real engine on the test's own database, on a clock the test moves."""

from .expectations import assert_journal, run_body
from .lab import Lab, LabBlocked
from .turns import BodyStuck

__all__ = ["BodyStuck", "Lab", "LabBlocked", "assert_journal", "run_body"]
