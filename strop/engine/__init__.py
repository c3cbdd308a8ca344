"""Engines: started once, swapped for ever."""
