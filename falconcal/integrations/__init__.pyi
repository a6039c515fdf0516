from .own_loop import FalconStep as FalconStep
from .sklearn import FalconClassifier as FalconClassifier
from .study_verbs import (
    StudyResult as StudyResult,
)
from .study_verbs import (
    TuningResult as TuningResult,
)
from .study_verbs import (
    run_study as run_study,
)
from .study_verbs import (
    tune_study as tune_study,
)
