from .own_loop import FalconStep as FalconStep
from .sklearn import FalconClassifier as FalconClassifier
