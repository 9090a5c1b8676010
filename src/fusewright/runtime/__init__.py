"""The parts that are alive when compiled code runs: launchers, machine code, the generated modules'
support, the module loader.
"""
