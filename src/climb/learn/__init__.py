"""Learning from a stream of one's own, for as long as it lasts."""
