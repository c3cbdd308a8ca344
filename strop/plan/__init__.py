"""Plan: what the hardware allows, and where the time goes."""
