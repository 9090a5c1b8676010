"""Packages: compiled programs as files, which run without the compiler.

container   the file: sections with digests, written whole or not at all
structure   nested arguments and results as data, and back
constants   what a native plan calls and holds, as data, and back
sizes       relations between sizes, as data, and whether they hold
building    a program to a package; imports the compiler
loading     a package to what is called; imports nothing of it
"""
