"""Words, vocabularies and word vectors; 20 Newsgroups by the paper's recipe."""

import gzip
import hashlib
import zipfile
from pathlib import Path

import numpy
import pytest
import torch

from falconcal.data import load_dataset
from falconcal.data.sets.newsgroups import shuffled
from falconcal.data.vocabulary import Encoder, most_frequent, read_vectors, split_words
from falconcal.errors import UserError
from tests.helpers.official_layouts import (
    newsgroup_members,
    newsgroup_text,
    write_archive,
    write_newsgroups,
)


def test_words_are_lower_case_without_the_papers_characters() -> None:
    text = "Don't PANIC: e-mail\tme@x.org\n(a|b) _c_ `d` 50% [e] {f} ~g ^h \\i /j <k> l=m; é#1\r\n"
    assert split_words(text) == [
        "don", "t", "panic", "e", "mail", "me", "x", "org", "a", "b", "c", "d", "50", "e", "f",
        "g", "h", "i", "j", "k", "l", "m", "é", "1",
    ]  # fmt: skip


def test_the_vocabulary_is_the_most_frequent_words_and_equals_stand_as_they_came() -> None:
    assert most_frequent(["b a c", "c b B", "d"], 3) == ("b", "c", "a")


def test_unknown_words_are_dropped_before_the_first_ones_are_kept() -> None:
    encode = Encoder(("a", "b"), 3)
    tokens = encode(["x a y b a b", "B", "x", ""])
    assert tokens.tolist() == [[1, 2, 1], [2, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_vectors_are_read_plain_packed_and_zipped_and_zero_where_there_is_none(
    tmp_path: Path,
) -> None:
    text = b"the 0.5 -1\n, 1 1\nsail 2 3\n"
    (tmp_path / "plain.txt").write_bytes(text)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(text))
    with zipfile.ZipFile(tmp_path / "glove.6B.zip", "w") as archive:
        archive.writestr("glove.6B.50d.txt", "the 9\n")
        archive.writestr("glove.6B.100d.txt", text)
    for path in tmp_path.iterdir():
        found = read_vectors(path, ("sail", "boat", "the"), 2)
        assert found.tolist() == [[0, 0], [2, 3], [0, 0], [0.5, -1]]


def test_damaged_vectors_are_named(tmp_path: Path) -> None:
    path = tmp_path / "glove.6B.100d.txt"
    path.write_text("a 1 2\nb 1\n")
    with pytest.raises(UserError, match=r"glove.*, line 2: expected a word and 2 numbers"):
        read_vectors(path, ("a", "b"), 2)
    with pytest.raises(UserError, match="it has none of them"):
        read_vectors(path, ("z",), 2)
    packed = tmp_path / "glove.6B.100d.txt.gz"
    packed.write_bytes(gzip.compress(b"a 1 2\n" * 5000)[:60])
    with pytest.raises(UserError, match=r"txt\.gz: expected word vectors, the file is damaged"):
        read_vectors(packed, ("a",), 2)


def test_newsgroups_follow_the_recipe(tmp_path: Path) -> None:
    news = load_dataset("newsgroups", **write_newsgroups(tmp_path))
    parts = (news.train, news.validation, news.test)
    assert [len(part) for part in parts] == [40, 20, 30]
    assert news.classes == ("alt.birds", "rec.boats", "sci.stars")
    encoder, vectors = news.encoder, news.vectors
    assert isinstance(encoder, Encoder)
    assert vectors is not None
    assert vectors.shape == (news.train.tokens, 100)
    assert vectors[0].eq(0).all()
    words = encoder.vocabulary
    assert vectors[1 + words.index("sail")].eq(2.5).all()
    assert vectors[1 + words.index("word3")].eq(0).all()
    # the fourth test text, worked by hand: group 0, number 3
    assert newsgroup_text(0, 3).startswith("From: somebody\n\nThe wing's wing WORD3, WORD3")
    spelled = ["from", "somebody", "the", "wing", "s", "wing", "word3", "word3"]
    index = sorted(newsgroup_members("test", 30)).index("20news-bydate-test/alt.birds/1003")
    assert news.test.inputs[index].tolist() == [1 + words.index(word) for word in spelled]
    for part in parts:
        assert part.texts is not None
        assert torch.equal(encoder(part.texts.raw), part.inputs)
        shown = [("wing", "sail", "light")[label] for label in part.labels]
        assert all(word in text for word, text in zip(shown, part.texts.raw, strict=True))


def test_newsgroups_are_tokenised_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from falconcal.data.sets import newsgroups

    settings = write_newsgroups(tmp_path)
    first = load_dataset("newsgroups", **settings)
    monkeypatch.setattr(newsgroups, "read_documents", lambda _: pytest.fail("read again"))
    again = load_dataset("newsgroups", **settings)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert first.encoder is not None
    with pytest.raises(pytest.fail.Exception):  # another length is another recipe
        load_dataset("newsgroups", **{**settings, "length": 9})


def test_an_archive_cannot_write_outside_and_other_members_are_passed_over(tmp_path: Path) -> None:
    settings = write_newsgroups(tmp_path / "inside")
    members = {**newsgroup_members("train", 60), **newsgroup_members("test", 30)}
    strange = {
        "../outside": b"evil",
        "/outside": b"evil",
        "20news-bydate-train/../../outside": b"evil",
        "20news-bydate-train/rec.boats/../1": b"evil",
    }
    write_archive(tmp_path / "inside" / "20news-bydate.tar.gz", {**members, **strange})
    before = sorted(tmp_path.rglob("*"))
    news = load_dataset("newsgroups", **settings)
    assert [len(part) for part in (news.train, news.validation, news.test)] == [40, 20, 30]
    assert sorted(tmp_path.rglob("*")) == before


def test_bad_newsgroups_are_named(tmp_path: Path) -> None:
    settings = write_newsgroups(tmp_path)
    with pytest.raises(UserError, match=r"more than 60 training texts.*got 60"):
        load_dataset("newsgroups", **{**settings, "training": 60})
    archive = tmp_path / "20news-bydate.tar.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"tar\.gz: expected 20 Newsgroups by date"):
        load_dataset("newsgroups", **settings)
    write_archive(archive, newsgroup_members("train", 60))
    with pytest.raises(UserError, match="got 3 and 0"):
        load_dataset("newsgroups", **settings)
    (tmp_path / "glove.6B.100d.txt").unlink()
    with pytest.raises(UserError, match=r"glove\.6B\.100d\.txt or .*falconcal data fetch"):
        load_dataset("newsgroups", **settings)


def test_the_order_of_the_training_texts_is_fixed() -> None:
    order = ",".join(str(index) for index in shuffled(11314))
    assert hashlib.sha256(order.encode()).hexdigest() == ORDER_CHECKSUM


ORDER_CHECKSUM = "9bfa7ce3742459c757dd0f977875cd51febdb6ac0a95fd2ea48bd7ce16b487a7"


@pytest.mark.end_to_end
def test_the_real_newsgroups_are_split_as_in_the_paper(real_data: Path) -> None:
    from falconcal.data.sets.newsgroups import read_documents

    documents = read_documents(real_data / "20news" / "20news-bydate.tar.gz")
    labels = documents["train"].labels
    order = shuffled(len(labels))
    assert (len(labels), len(documents["test"].labels)) == (11314, 7532)
    assert len(numpy.unique(labels[:9000])) == 16  # why they are shuffled
    assert numpy.bincount(labels[order[:9000]]).min() > 250
    assert documents["train"].texts[0].startswith("From: mathew <mathew@mantis.co.uk>")
