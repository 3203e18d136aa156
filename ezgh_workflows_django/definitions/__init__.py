"""What a workflow is: graph, policies, validation, input rule, expressions, the wire form, the seam to an engine. Pure Python."""
