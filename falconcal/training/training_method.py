"""What all training methods inherit: the common settings, and ``fit``."""

import abc
from typing import Unpack

from torch import nn

from falconcal.core.model_inputs import Inputs
from falconcal.core.module_state import check_module, without_wrapper
from falconcal.core.settings import settings
from falconcal.data import Batches, Bounds
from falconcal.training.common_settings import TrainingSettings
from falconcal.training.loop import fit_objectives
from falconcal.training.objectives import Objective
from falconcal.training.recipe import TrainingOptions, check_options
from falconcal.training.step import StatedBounds


@settings
class TrainingMethod(TrainingSettings, abc.ABC):
    """Base of all methods that train: give ``objectives``, inherit ``fit``.

    A method that returns something other than the model it was given overrides ``build``; one that
    trains other networks beside the model overrides ``auxiliary``.

    Example:
        >>> import falconcal
        >>> from falconcal.core.settings import settings
        >>> from falconcal.training import Objective, TrainingMethod, adam
        >>> @settings
        ... class Margin(TrainingMethod):
        ...     def objectives(self):
        ...         return [Objective("margin", margin_terms, adam(self))]
        >>> def margin_terms(step):
        ...     logits = step.logits()  # (N, C)
        ...     right = logits.gather(1, step.labels[:, None])  # (N, 1)
        ...     return {"margin": (1 + logits - right).relu().mean()}
        >>> data = falconcal.load_dataset("digits")
        >>> model = falconcal.make_model("mlp", data)
        >>> model = Margin(epochs=3).fit(model, data.train.batches(50), data.validation)
        >>> falconcal.accuracy(falconcal.predict(model, data.test)) > 0.8
        True
    """

    @abc.abstractmethod
    def objectives(self) -> list[Objective]:
        """Return the objectives in the order in which they are stepped on each batch."""

    def build(self, model: nn.Module) -> nn.Module:
        """Return the module that is trained and returned: the model itself unless overridden."""
        return model

    def auxiliary(self, inputs: Inputs, bounds: Bounds | None) -> dict[str, nn.Module]:  # noqa: ARG002
        """Return networks to train beside the model, for inputs such as these; by default none."""
        return {}

    def input_bounds(self, train: Batches) -> StatedBounds:
        """Return the range of the inputs: that of the training data, where it has one."""
        bounds: Bounds | None = getattr(train, "bounds", None)
        return bounds

    def fit(
        self,
        model: nn.Module,
        train: Batches,
        validation: Batches | None = None,
        **options: Unpack[TrainingOptions],
    ) -> nn.Module:
        """Train a model and return it in inference mode.

        Args:
            model: Any module that gives logits; it is trained in place.
            train: Batches of (inputs, labels), such as a DataLoader.
            validation: Batches that warn of a collapse and, if asked for, choose the epoch; they
                may be left out where no epoch is chosen.
            **options: ``optimizer``, ``scheduler``, ``warmup_steps``, ``class_weights``,
                ``label_smoothing`` and ``loss``, as ``falconcal.training.Recipe`` documents them.

        Returns:
            The trained module: the model itself, or what ``build`` makes of it.

        Raises:
            UserError: If the model or the data cannot be trained with, or training diverges.
        """
        check_module(model)
        return fit_objectives(
            self.build(without_wrapper(model)),
            train,
            validation,
            self.objectives(),
            self,
            self.input_bounds(train),
            self.auxiliary,
            check_options(dict(options)),
        )
