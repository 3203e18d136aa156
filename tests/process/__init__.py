"""The worker as real processes: how they die, stop, hang and come back, on whichever database the tests run."""
