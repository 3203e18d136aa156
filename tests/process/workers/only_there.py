"""A module that can be imported only where its server runs: for the check W003."""

import os

application = os.environ["ONLY_ON_THE_SERVER"]
