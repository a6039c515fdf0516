from . import (
    data as data,
    errors as errors,
    evaluation as evaluation,
    evidence as evidence,
    inference as inference,
    integrations as integrations,
    methods as methods,
    metrics as metrics,
    models as models,
    recalibration as recalibration,
    report as report,
    shifts as shifts,
    studies as studies,
    training as training,
)
from .data import (
    DATASETS as DATASETS,
    Bounds as Bounds,
    Dataset as Dataset,
    Examples as Examples,
    Loader as Loader,
    load_dataset as load_dataset,
)
from .errors import (
    UserError as UserError,
)
from .evaluation import (
    assess as assess,
    evaluate as evaluate,
    plot_rows as plot_rows,
)
from .evidence import (
    interval as interval,
    paired_difference as paired_difference,
)
from .inference import (
    load as load,
    read_predictions as read_predictions,
    save as save,
)
from .integrations import (
    FalconClassifier as FalconClassifier,
    FalconStep as FalconStep,
    run_study as run_study,
    tune_study as tune_study,
)
from .methods import (
    METHODS as METHODS,
    MNF as MNF,
    SNGP as SNGP,
    SVI as SVI,
    Adversarial as Adversarial,
    AugMix as AugMix,
    Ensemble as Ensemble,
    EntropySmoothing as EntropySmoothing,
    Evidential as Evidential,
    Falcon as Falcon,
    Focal as Focal,
    JointGAN as JointGAN,
    L2Dropout as L2Dropout,
    LabelSmoothing as LabelSmoothing,
    LastLayerSVI as LastLayerSVI,
    MCDropout as MCDropout,
    Mixup as Mixup,
    RegMixup as RegMixup,
)
from .metrics import (
    METRICS as METRICS,
    Predictions as Predictions,
    accuracy as accuracy,
    brier_score as brier_score,
    expected_calibration_error as expected_calibration_error,
    negative_log_likelihood as negative_log_likelihood,
)
from .models import (
    MODELS as MODELS,
    make_model as make_model,
    predict as predict,
)
from .recalibration import (
    DensityAware as DensityAware,
    EnsembleTemperature as EnsembleTemperature,
    HistogramBinning as HistogramBinning,
    Isotonic as Isotonic,
    OneCurveIsotonic as OneCurveIsotonic,
    ParameterisedTemperature as ParameterisedTemperature,
    ScalingBinning as ScalingBinning,
    ShiftTemperature as ShiftTemperature,
    Temperature as Temperature,
    VectorScaling as VectorScaling,
)
from .report import (
    write_report as write_report,
)
from .shifts import (
    SHIFTS as SHIFTS,
    Shift as Shift,
)
from .studies import (
    STUDIES as STUDIES,
)
from .training import (
    checkpointing as checkpointing,
)

__version__: str
