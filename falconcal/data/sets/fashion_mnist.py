"""Fashion-MNIST, 70,000 pieces of clothing, 28x28 grey: outliers for models of MNIST.

H. Xiao, K. Rasul and R. Vollgraf, arXiv:1708.07747; files and split of MNIST's form. As outliers
only the test part is read, so only its two files need be there.
"""

from falconcal.core.settings import settings
from falconcal.data.data_files import FASHION_MNIST
from falconcal.data.dataset import Dataset
from falconcal.data.images import Images
from falconcal.data.sets.mnist import load_digits, read_pair

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)  # fmt: skip


@settings
class FashionMnist:
    """Where Fashion-MNIST lies, unless it is to be looked for."""

    path: str | None = None

    def load(self) -> Dataset:
        return load_digits("fashion_mnist", CLASSES, FASHION_MNIST, self.path)

    def load_test(self) -> Images:
        return read_pair(CLASSES, FASHION_MNIST[2:], self.path)
