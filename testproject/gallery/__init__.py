"""A gallery that resizes pictures, waits to be paid and tells people: the durable function of the docs, at work on real images."""
