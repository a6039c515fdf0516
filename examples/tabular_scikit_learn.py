"""A table of numbers with scikit-learn's words: fit, predict_proba, cross-validation.

python examples/tabular_scikit_learn.py [epochs]
"""

import sys

import numpy
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import falconcal

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
rows, labels = load_digits(return_X_y=True)
train, test, train_labels, test_labels = train_test_split(rows, labels, random_state=0)

noise = numpy.random.default_rng(0).standard_normal(test.shape)
noisy = test + rows.std(0) * noise  # every column of the table is off by its own spread
plain = {"entropy_weight": 0.0, "calibration_weight": 0.0}
for name, settings in {"plain": plain, "FALCON": {}}.items():
    model = falconcal.FalconClassifier(epochs=epochs, random_state=0, **settings)
    model.fit(train, train_labels)
    errors = [
        falconcal.expected_calibration_error(
            falconcal.Predictions.from_probabilities(model.predict_proba(data), test_labels)
        )
        for data in (test, noisy)
    ]
    print(
        f"{name}: accuracy {model.score(test, test_labels):.3f}, ECE {errors[0]:.3f} clean, "
        f"{errors[1]:.3f} with noisy columns"
    )
