"""The files of a run, each as a Struct: types, bounds and meaning of every key stand once, here."""
