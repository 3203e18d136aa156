"""What operators see and press, as pages of Django's admin. Reads rows; moves them only through the engine's verbs."""
