"""Systematic tests of soundness: guards, by changes between calls; breaks, by random programs."""
