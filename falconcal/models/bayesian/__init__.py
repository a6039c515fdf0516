"""Bayesian layers, and networks made of ordinary ones with them.

Adding a kind of layer: subclass ``Bayesian`` in a file of its own and give it forms, by the kind of
ordinary layer that it takes the place of.
"""

from falconcal.models.bayesian.conversion import Forms, to_bayesian, with_bayesian_last_layer
from falconcal.models.bayesian.flipout import Flipout
from falconcal.models.bayesian.layer import BayesianLayer, divergence
from falconcal.models.bayesian.mnf_layers import MNFConv2d, MNFLinear

__all__ = [
    "BayesianLayer",
    "Flipout",
    "Forms",
    "MNFConv2d",
    "MNFLinear",
    "divergence",
    "to_bayesian",
    "with_bayesian_last_layer",
]
