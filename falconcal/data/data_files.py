"""The files that datasets are made of: their names, folders and addresses.

Checksums are those that the authors, or libraries that many people use, publish.
"""

from dataclasses import dataclass
from pathlib import Path

from falconcal.data.fetching import RemoteFile, fetch_file
from falconcal.data.locations import cache_folder, find_file, missing_file_error, search_folders


@dataclass(frozen=True)
class DataFile:
    """One file: the folders it may be in, the names it may have, and where it comes from."""

    dataset: str
    folders: tuple[str, ...]
    names: tuple[str, ...]  # the first is what is downloaded
    remote: RemoteFile
    content: str | None = None  # md5 of what is inside, where that is published too

    def find(self, path: str | None = None) -> Path | None:
        """Return the file if it is here: at a path given, in the user's folder, in the cache."""
        return find_file(search_folders(self.folders, path), self.names)

    def find_or_fetch(self, path: str | None = None) -> Path:
        """Return the file, downloaded if it is not here; a path that is given must have it."""
        found = self.find(path)
        if found is None and path is not None:
            raise missing_file_error(self.dataset, self.names, search_folders(self.folders, path))
        return found or self.fetch()

    def fetch(self) -> Path:
        """Return the file in the cache, downloaded if it is not there."""
        return fetch_file(self.remote, cache_folder() / self.folders[0] / self.names[0])


def _digits(
    dataset: str, folders: tuple[str, ...], roots: tuple[str, ...], files: str
) -> list[DataFile]:
    """Return files of MNIST's form, one per line: name, size, md5, and md5 of the content."""
    sources = []
    for line in files.strip().splitlines():
        name, size, checksum, *content = line.split()
        remote = RemoteFile(
            tuple(f"{root}/{name}.gz" for root in roots), f"md5:{checksum}", int(size)
        )
        names = (f"{name}.gz", name)
        sources.append(DataFile(dataset, folders, names, remote, *content))
    return sources


MNIST = _digits(
    "mnist",
    ("mnist", "MNIST/raw"),
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        "http://yann.lecun.com/exdb/mnist",
    ),
    """
train-images-idx3-ubyte 9912422 f68b3c2dcbeaaa9fbdd348bbdeb94873 6bbc9ace898e44ae57da46a324031adb
train-labels-idx1-ubyte 28881 d53e105ee54ea40749a09fcbcd1e9432 a25bea736e30d166cdddb491f175f624
t10k-images-idx3-ubyte 1648877 9fb629c4189551a2d022fa330f9573f3 2646ac647ad5339dbf082846283269ea
t10k-labels-idx1-ubyte 4542 ec29112dd5afa0611ce80d1b7f02629c 27ae3e4e09519cfbb04c329615203637
""",
)

FASHION_MNIST = _digits(
    "fashion_mnist",
    ("fashion-mnist", "FashionMNIST/raw"),
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ),
    """
train-images-idx3-ubyte 26421880 8d4fb7e6c68d591d4c3dfef9ec88bf0d
train-labels-idx1-ubyte 29515 25c81989df183df01b3e8a0aad5dffbe
t10k-images-idx3-ubyte 4422102 bef4ecab320f06d8554ea6380940ec79
t10k-labels-idx1-ubyte 5148 bb300cfdad3c16e7a12a480ee83cd310
""",
)

CIFAR10 = DataFile(
    "cifar10",
    ("cifar-10", "cifar10", "cifar-10-batches-bin", "cifar-10-batches-py"),
    ("cifar-10-binary.tar.gz",),
    RemoteFile(
        (
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
        ),
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        170_052_171,
    ),
)

NEWSGROUPS = DataFile(
    "newsgroups",
    ("20news", "20news-bydate", "20newsgroups"),
    ("20news-bydate.tar.gz",),
    RemoteFile(
        (
            "https://ndownloader.figshare.com/files/5975967",
            "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
        ),
        "sha256:8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
        14_464_277,
    ),
)

GLOVE = DataFile(
    "newsgroups",
    ("glove", "glove.6B"),
    (
        "glove.6B.zip",
        "glove.6B.100d.txt",
        "glove.6B.100d.txt.gz",
        "glove.6B.100d.top100k.txt.gz",
    ),
    RemoteFile(
        (
            "https://nlp.stanford.edu/data/glove.6B.zip",
            "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
            "https://huggingface.co/stanfordnlp/glove/resolve/main/glove.6B.zip",
        ),
        "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
        862_182_613,
    ),
)

SOURCES: dict[str, tuple[DataFile, ...]] = {
    "mnist": tuple(MNIST),
    "fashion_mnist": tuple(FASHION_MNIST),
    "cifar10": (CIFAR10,),
    "sequential_mnist": tuple(MNIST),
    "newsgroups": (NEWSGROUPS, GLOVE),
}
