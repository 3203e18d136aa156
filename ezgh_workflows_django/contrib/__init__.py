"""Bridges to what others have: each stands on the engine, and nothing stands on it."""
