"""Classifiers whose confidence can be trusted when the data shifts.

The public names stand in the stub beside this file, each once, and are loaded when they are first
used, so that ``falconcal --help`` does not wait for torch.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
