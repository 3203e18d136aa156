"""System checks: registered by `apps.ready`."""
