"""L2 + dropout: cross-entropy with an L2 penalty on dense weights, the paper's plain baseline.

Per batch: L_CCE + lambda_2 sum w^2, summed over the weights of dense layers. The dropout is that of
the model's own layers.
"""

from functools import partial

from falconcal.core.settings import settings
from falconcal.training import Objective, TrainingMethod, adam, clean_terms


@settings
class L2Dropout(TrainingMethod):
    """Train with cross-entropy: the plain method that all others are compared with.

    Needs dropout layers in the model only if ``dropout`` is above 0, and ``nn.Linear`` layers only
    if ``l2_weight`` is. Other methods' costs are given relative to its step.

    Raises:
        UserError: If the model lacks the layers that a setting needs.

    Example:
        >>> import falconcal
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> method = falconcal.L2Dropout(epochs=3, dropout=0.1, l2_weight=1e-4)
        >>> model = method.fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    def objectives(self) -> list[Objective]:
        return [Objective("clean", partial(clean_terms, self), adam(self))]
