from . import (
    data as data,
)
from . import (
    evaluation as evaluation,
)
from . import (
    evidence as evidence,
)
from . import (
    inference as inference,
)
from . import (
    integrations as integrations,
)
from . import (
    methods as methods,
)
from . import (
    metrics as metrics,
)
from . import (
    models as models,
)
from . import (
    recalibration as recalibration,
)
from . import (
    report as report,
)
from . import (
    shifts as shifts,
)
from . import (
    studies as studies,
)
from . import (
    training as training,
)
from .data import (
    DATASETS as DATASETS,
)
from .data import (
    Bounds as Bounds,
)
from .data import (
    Dataset as Dataset,
)
from .data import (
    Examples as Examples,
)
from .data import (
    Framing as Framing,
)
from .data import (
    Preparation as Preparation,
)
from .data import (
    load_dataset as load_dataset,
)
from .errors import (
    CalibrationWarning as CalibrationWarning,
)
from .errors import (
    CollapseWarning as CollapseWarning,
)
from .errors import (
    UsageError as UsageError,
)
from .errors import (
    UserError as UserError,
)
from .evaluation import assess as assess
from .evaluation import evaluate as evaluate
from .evidence import interval as interval
from .evidence import paired_difference as paired_difference
from .inference import load as load
from .inference import read_predictions as read_predictions
from .inference import save as save
from .integrations import FalconClassifier as FalconClassifier
from .integrations import FalconStep as FalconStep
from .methods import (
    METHODS as METHODS,
)
from .methods import (
    MNF as MNF,
)
from .methods import (
    SVI as SVI,
)
from .methods import (
    Adversarial as Adversarial,
)
from .methods import (
    Ensemble as Ensemble,
)
from .methods import (
    Evidential as Evidential,
)
from .methods import (
    Falcon as Falcon,
)
from .methods import (
    Focal as Focal,
)
from .methods import (
    JointGAN as JointGAN,
)
from .methods import (
    L2Dropout as L2Dropout,
)
from .methods import (
    LabelSmoothing as LabelSmoothing,
)
from .methods import (
    LastLayerSVI as LastLayerSVI,
)
from .methods import (
    MCDropout as MCDropout,
)
from .methods import (
    Mixup as Mixup,
)
from .metrics import (
    METRICS as METRICS,
)
from .metrics import (
    Predictions as Predictions,
)
from .metrics import (
    Scores as Scores,
)
from .metrics import (
    accuracy as accuracy,
)
from .metrics import (
    brier_score as brier_score,
)
from .metrics import (
    expected_calibration_error as expected_calibration_error,
)
from .metrics import (
    macro_ece as macro_ece,
)
from .metrics import (
    micro_ece as micro_ece,
)
from .metrics import (
    negative_log_likelihood as negative_log_likelihood,
)
from .metrics import (
    reliability_curve as reliability_curve,
)
from .models import MODELS as MODELS
from .models import make_model as make_model
from .models import predict as predict
from .recalibration import (
    HistogramBinning as HistogramBinning,
)
from .recalibration import (
    Isotonic as Isotonic,
)
from .recalibration import (
    ScalingBinning as ScalingBinning,
)
from .recalibration import (
    Temperature as Temperature,
)
from .recalibration import (
    VectorScaling as VectorScaling,
)
from .shifts import OUTLIERS as OUTLIERS
from .shifts import SHIFTS as SHIFTS
from .shifts import Shift as Shift
from .studies import STUDIES as STUDIES
from .training import History as History
from .training import checkpointing as checkpointing

__version__: str
