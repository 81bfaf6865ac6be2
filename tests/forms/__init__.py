"""Compiled and interpreted, the engines are one program. mypyc turns numbers that are declared
native (``i64`` and kin) into those of C, which wrap without a word; from source they grow.
``ranges`` makes source raise where C would wrap, ``agree`` compares the two forms.
"""
