"""The words both sides share: states and the table of moves, messages, codec. Pure Python."""
