"""Watch: health of what is live, drift of the traffic (to come)."""
