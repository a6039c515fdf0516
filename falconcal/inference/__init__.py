"""Use a trained model: save and load it, predict from files, read files of predictions."""

from falconcal.inference.model_file import SavedModel, load, save
from falconcal.inference.model_metadata import ModelMetadata
from falconcal.inference.prediction_files import PredictionFile, read_predictions, same_examples

__all__ = [
    "ModelMetadata",
    "PredictionFile",
    "SavedModel",
    "load",
    "read_predictions",
    "same_examples",
    "save",
]
