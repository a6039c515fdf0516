"""Fashion-MNIST, 70,000 pieces of clothing, 28x28 grey: outliers for models of MNIST.

H. Xiao, K. Rasul and R. Vollgraf, arXiv:1708.07747; files and split of MNIST's form. As outliers
only the test part is read, so only its two files are needed.
"""

from falconcal.core.settings import settings
from falconcal.data.data_files import FASHION_MNIST
from falconcal.data.dataset import Dataset
from falconcal.data.images import Images
from falconcal.data.sets.mnist import load_digits, read_pair

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)  # fmt: skip


@settings
class FashionMnist:
    """Fashion-MNIST, with settings."""

    path: str | None = None
    """The folder of Fashion-MNIST's four files; by default it is looked for where data is kept."""

    def load(self) -> Dataset:
        return load_digits("fashion_mnist", FASHION_CLASSES, FASHION_MNIST, self.path)

    def load_test(self) -> Images:
        return read_pair(FASHION_CLASSES, FASHION_MNIST[2:], self.path)
