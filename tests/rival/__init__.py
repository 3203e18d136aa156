"""An installed app that ships a `runworker` of its own, as three known packages do."""
