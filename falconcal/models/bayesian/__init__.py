"""Bayesian layers, and networks made of ordinary ones with them.

To add a kind of layer, subclass ``BayesianLayer`` in a file of its own and make a table ``Forms``
from each kind of ordinary layer to the function that makes its replacement.
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
