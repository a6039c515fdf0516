"""The arguments and options of all commands, each with its help text, named by what they hold."""

from pathlib import Path
from typing import Annotated, Literal

import typer

# shared by several commands

StudyArgument = Annotated[str, typer.Argument(help="Name of a study, or path of its TOML file.")]
ChangesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting: key=value. Can be repeated."
    ),
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Do not download anything.")]
TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust-code",
        metavar="PACKAGE",
        help="Run code of this package where files name it as package.module:Name. Can be "
        "repeated.",
    ),
]
FiguresOption = Annotated[
    str,
    typer.Option(metavar="FORMATS", help="File formats of the figures, of svg, png and pdf."),
]
PaperOption = Annotated[
    bool, typer.Option("--paper", help="Also write the tables as LaTeX and Markdown.")
]

# falconcal run

MethodsOption = Annotated[
    str | None, typer.Option(help="Methods of the study, separated by commas (default: all).")
]
VariantsOption = Annotated[
    str | None,
    typer.Option(
        help="Variants of the study, separated by commas (default: all). The plain variant is "
        "called default."
    ),
]
SeedsOption = Annotated[
    int | None, typer.Option(help="Number of seeds: 0, 1, ... (default: as in the study).")
]
RunFolderOption = Annotated[Path | None, typer.Option(help="Output folder (default: runs/STUDY).")]
TunedSettingsOption = Annotated[
    Path | None, typer.Option(help="File of settings that falconcal tune chose: best.toml.")
]
WorkersOption = Annotated[
    int, typer.Option(help="Worker processes on this machine; each does one run at a time.")
]
RayOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Do the runs on this Ray cluster; local starts one."),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Threads per run (default: torch's number, divided by the workers)."),
]
DevicesOption = Annotated[
    int | None, typer.Option(help="Devices that train each run together, one process each.")
]
MachinesOption = Annotated[int | None, typer.Option(help="Machines that train each run together.")]
StrategyOption = Annotated[
    str | None, typer.Option(help="Strategy of Lightning Fabric, such as ddp.")
]
PrecisionOption = Annotated[
    str | None, typer.Option(help="Precision of training, such as bf16-mixed.")
]
SmokeOption = Annotated[
    bool,
    typer.Option(
        "--smoke",
        help="Check in seconds that the study runs: few examples, one epoch, few levels. The "
        "output folder is then runs/smoke/STUDY by default.",
    ),
]
MeasureWhenOption = Annotated[
    Literal["now", "later"],
    typer.Option(
        help="When the runs are measured under shift: now, or later by falconcal measure, all in "
        "one pass."
    ),
]
TensorboardOption = Annotated[
    bool,
    typer.Option(
        "--tensorboard", help="Also write event files for TensorBoard to OUT/tensorboard."
    ),
]

# falconcal measure

FinishedFolderArgument = Annotated[Path, typer.Argument(help="Output folder of falconcal run.")]
FurtherShiftsOption = Annotated[
    str | None,
    typer.Option(
        help="Shifts, or groups of them such as corruptions, separated by commas (default: what "
        "the study tests and runs lack)."
    ),
]
FurtherOutliersOption = Annotated[
    str | None, typer.Option(help="Sets of outliers, separated by commas.")
]
MeasuredMethodsOption = Annotated[
    str | None, typer.Option(help="Methods, separated by commas (default: all).")
]
MeasuredVariantsOption = Annotated[
    str | None, typer.Option(help="Variants, separated by commas (default: all).")
]
MeasuredSeedsOption = Annotated[
    int | None, typer.Option(min=1, help="Number of seeds: 0, 1, ... (default: all).")
]

# falconcal tune

TunedMethodOption = Annotated[
    str, typer.Option(help="Method of the study; if it has a base, the base is tuned.")
]
TrialsOption = Annotated[
    int, typer.Option(help="Number of trials in total, including those done before.")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Storage of Optuna (default: trials.db in the output folder)."
    ),
]
TuningFolderOption = Annotated[
    Path | None, typer.Option(help="Output folder (default: runs/tune/STUDY).")
]
SearchSeedOption = Annotated[
    int, typer.Option(help="Seed of the points drawn, and of every training.")
]
TuningWorkersOption = Annotated[int, typer.Option(help="Worker processes, with one thread each.")]
PruneOption = Annotated[
    bool, typer.Option(help="End a trial early when it is worse than the median of the others.")
]
ScoreTestOption = Annotated[
    bool,
    typer.Option(
        "--also-score-test",
        help="Also measure each complete trial on test data, after it is judged, to see how "
        "well the criterion ranks. Nothing is chosen by it.",
    ),
]
EarlierSettingsOption = Annotated[
    Path | None,
    typer.Option(help="File of settings chosen before, such as those of the reference."),
]

# falconcal score

PredictionsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="CSV, Parquet, NPZ, NPY or JSON file; - is standard input. Several files of the same "
        "examples are compared with the first.",
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of the true class (default: label, y_true, target, ...)."
    ),
]
ProbabilitiesOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Column of the probability, several as a,b,c, or what the columns of the classes "
        "begin with (default: p_; with --logits logit_). In NPZ files the name of an array.",
    ),
]
TruthOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File with the true classes, if another.")
]
IdentifierOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="Column that matches rows with --truth (default: the first, if both files begin with "
        "it; else rows are in the same order).",
    ),
]
PositiveOption = Annotated[
    str | None,
    typer.Option(metavar="CLASS", help="Class that a single probability is of (default: 1)."),
]
PredictionOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of the top prediction (default: prediction, ...)."),
]
ConfidenceOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of its confidence (default: confidence)."),
]
FormOption = Annotated[
    Literal["classes", "positive", "top"] | None,
    typer.Option(
        help="Form of a file that fits several: a probability per class, one of the positive "
        "class, or the top prediction with its confidence."
    ),
]
NormaliseOption = Annotated[
    bool,
    typer.Option("--normalise", help="Divide rows that sum to 1 within 0.1 by their sum."),
]
NoHeaderOption = Annotated[
    bool,
    typer.Option("--no-header", help="CSV files have no header: the columns are 0, 1, 2, ..."),
]
RunShiftOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Shift of a run's scores.parquet (default: the clean examples)."
    ),
]
RunLevelOption = Annotated[
    int | None, typer.Option(help="Level of that shift (default: all of them).")
]
LogitsOption = Annotated[
    bool, typer.Option("--logits", help="The numbers are logits, not probabilities.")
]
GroupsOption = Annotated[
    str | None, typer.Option(help="Column of groups, such as sites; the worst groups are shown.")
]
GroupMetricOption = Annotated[str, typer.Option(help="Metric by which groups are compared.")]
BinsOption = Annotated[int, typer.Option(help="Number of bins of confidence.")]
ScoreFolderOption = Annotated[
    Path | None, typer.Option(help="Output folder (default: runs/score/NAME of the file).")
]

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs instead of tables.")
]

# falconcal predict

ModelArgument = Annotated[
    Path, typer.Argument(help="File written by falconcal.save, or the folder of a run.")
]
InputArgument = Annotated[
    Path, typer.Argument(metavar="INPUT", help="Folder of images, or a CSV, NPY or NPZ file.")
]
PredictionsFileOption = Annotated[
    Path | None, typer.Option(help="CSV or Parquet file (default: runs/predict/INPUT.csv).")
]
ClassProbabilitiesOption = Annotated[
    bool,
    typer.Option("--probabilities", help="Also write the probability of each class, as p_CLASS."),
]
RejectBelowOption = Annotated[
    float | None, typer.Option(help="Reject predictions with a confidence below this.")
]
RiskOption = Annotated[
    float | None,
    typer.Option(
        help="Reject as many as needed to keep the error rate of the others below this, with "
        "95 % certainty by the validation data that the model was saved with."
    ),
]

# falconcal recalibrate

TrainedModelArgument = Annotated[
    str,
    typer.Argument(
        help="File written by falconcal.save, the folder of a run, or package.module:make of a "
        "function without arguments that makes your module."
    ),
]
LabelledArgument = Annotated[
    Path,
    typer.Argument(
        help="Labelled data that did not train the model: a folder with one folder of images per "
        "class, an NPZ file with the arrays inputs and labels (or validation_inputs and "
        "validation_labels), or a CSV file with the column label."
    ),
]
RecalibratedFileOption = Annotated[
    Path, typer.Option(help="File of the recalibrated model, .safetensors.")
]
CalibratorOption = Annotated[str, typer.Option(help="Calibrator, as falconcal list methods names.")]
TrainingDataOption = Annotated[
    Path | None,
    typer.Option(
        help="Training data, in the same formats, for calibrators that store examples (default: a "
        "half of the labelled data is stored and not fitted on)."
    ),
]
DriftedDataOption = Annotated[
    Path | None,
    typer.Option(
        help="A labelled sample of later data, in the same formats: another month, site or camera. "
        "It is fitted on too, and one half of it judges a fit on the other."
    ),
]
PerturbedOption = Annotated[
    str | None,
    typer.Option(
        help="Shifts, separated by commas, under which copies of the data are fitted on too; "
        "crafted stands for those made for the kind of data (default: as the calibrator has it)."
    ),
]
FittedOutliersOption = Annotated[
    str | None,
    typer.Option(help="Sets of outliers, separated by commas, to fit on too."),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(help="Weights of a named module: safetensors, or a .pth file of tensors alone."),
]
ClassNamesOption = Annotated[
    str | None,
    typer.Option(
        help="Names of the classes in the order of a named module's outputs, separated by commas."
    ),
]
ExampleShapeOption = Annotated[
    str | None,
    typer.Option(help="Shape of a named module's images: channels, height and width, as 3,32,32."),
]
BoundsOption = Annotated[
    str | None,
    typer.Option(help="Lowest and highest value of a named module's inputs, such as 0,1."),
]
MeanOption = Annotated[
    str | None,
    typer.Option(
        help="What a named module's pixels from 0 to 1 are lessened by, one number per channel."
    ),
]
DeviationOption = Annotated[
    str | None,
    typer.Option(help="What they are divided by after that, one number per channel."),
]
FewestOption = Annotated[
    int, typer.Option(min=1, help="Examples that each class of the model needs.")
]
