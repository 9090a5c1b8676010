"""Values, which stand on the symbolic stack: one file a kind of Python value; `base` is the
protocol.
"""
