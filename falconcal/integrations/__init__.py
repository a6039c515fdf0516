"""Doors for others: own loops, notebooks, scikit-learn, Lightning, Hugging Face, TensorBoard."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
