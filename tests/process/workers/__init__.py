"""An app with workflows for the processes of these tests: they get it through EXTRA_APPS."""
