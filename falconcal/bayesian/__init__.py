"""Bayesian layers, and networks made of ordinary ones with them.

Adding a kind of layer: subclass ``Bayesian`` in a file of its own and give it forms, by the kind of
ordinary layer that it takes the place of.
"""

from falconcal.bayesian.conversion import Forms, converted, with_last_layer
from falconcal.bayesian.flipout import Flipout
from falconcal.bayesian.layer import Bayesian, divergence
from falconcal.bayesian.mnf import MNFConv2d, MNFLinear

__all__ = [
    "Bayesian",
    "Flipout",
    "Forms",
    "MNFConv2d",
    "MNFLinear",
    "converted",
    "divergence",
    "with_last_layer",
]
