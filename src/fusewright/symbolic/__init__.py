"""Sizes that are not known when a program is compiled: the facts about them, and their face towards
torch.
"""
