"""Systematic tests of soundness: of guards, by changes between calls, and of graph breaks, by random
programs.
"""
