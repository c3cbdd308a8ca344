"""Gate: what a candidate has to pass, one file a kind of check."""
