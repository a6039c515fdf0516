"""A study of tables of the library alone, as text."""

TEXT = """
name = "small"
dataset = "digits"
model = "lenet"
shifts = ["shear"]
selection_shifts = ["contrast"]
[methods.dropout]
epochs = 1
"""
