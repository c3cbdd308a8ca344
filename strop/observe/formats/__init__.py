"""One reader for each trace format: lines in, requests out."""
