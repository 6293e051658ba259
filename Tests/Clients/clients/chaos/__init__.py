"""Clients that stay connected while everything around them is disturbed. See `chaos/staying.py`."""
