"""Word shifts and typos: the contract of every shift, and what each says it does."""

import itertools

import pytest
import scipy.stats
import torch
from torch import Tensor, nn

from falconcal.data import Examples, Texts
from falconcal.errors import UserError
from falconcal.evaluation.under_shift import score_under_shift
from falconcal.shifts import SHIFTS, find_computed_shift, typos, word_shifts
from falconcal.shifts.typos import LETTER_SHARES

TOKENS, LENGTH = 500, 40
LENGTHS = [40, 31, 20, 11, 1, 0]
WORDS = word_shifts()
RAW = ["A word, and then some more of them.", "Überall Wörter; 42 of 'em!", "", "xyz " * 30]


@pytest.fixture
def texts() -> Tensor:
    """Texts of several lengths, padded with 0 at the end: (60, 40)."""
    lengths = torch.tensor(LENGTHS * 10)[:, None]
    words = torch.randint(1, TOKENS, (60, LENGTH))
    return words.masked_fill(torch.arange(LENGTH) >= lengths, 0)


def real(words: Tensor) -> Tensor:
    return (words != 0).sum(1)


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_contract_of_a_shift(name: str, texts: Tensor, dtype: torch.dtype) -> None:
    shift, numbers, texts = SHIFTS[name], torch.arange(60), texts.to(dtype)
    before = texts.clone()
    assert len(shift.strengths) == 10
    assert torch.equal(shift.at(texts, 0, tokens=TOKENS), texts)
    for level in shift.levels[1:]:
        whole = shift.at(texts, level, seed=3, tokens=TOKENS)
        assert whole.shape == texts.shape
        assert whole.dtype == dtype
        assert whole.min() >= 0
        assert whole.max() < TOKENS
        assert not torch.equal(whole, texts)
        parts = [
            shift.at(texts[part], level, seed=3, examples=numbers[part], tokens=TOKENS)
            for part in (slice(0, 7), slice(7, 60))
        ]
        assert torch.equal(torch.cat(parts), whole)
        assert not torch.equal(shift.at(texts, level, seed=4, tokens=TOKENS), whole)
    assert torch.equal(texts, before)


@pytest.mark.parametrize("name", WORDS)
def test_more_places_change_at_higher_levels(name: str, texts: Tensor) -> None:
    changed = [
        (SHIFTS[name].at(texts, level, tokens=TOKENS) != texts).sum().item() for level in range(10)
    ]
    assert all(near < far for near, far in itertools.pairwise(changed))


@pytest.mark.parametrize(("name", "step"), [("word_swap", 0.05), ("word_swap_90", 0.1)])
@pytest.mark.parametrize("anywhere", [False, True])
def test_the_named_share_becomes_random_words(
    name: str, step: float, anywhere: bool, texts: Tensor
) -> None:
    shift = SHIFTS[f"{name}_anywhere" if anywhere else name]
    for level in range(1, 10):
        # of so many words none is likely to be swapped for itself
        changed = shift.at(texts, level, tokens=10**7) != texts
        places = torch.full((60,), LENGTH) if anywhere else real(texts)
        assert changed.sum(1).tolist() == [round(step * level * int(count)) for count in places]
        assert not (changed & (texts == 0)).any() or anywhere
    swapped = shift.at(texts, 9, tokens=TOKENS)
    assert torch.equal(swapped == 0, texts == 0) or anywhere
    drawn = swapped[swapped != texts].double().numpy()
    assert drawn.min() >= 1
    assert scipy.stats.kstest(drawn, "uniform", (0.5, TOKENS - 1)).pvalue > 1e-3


def test_dropped_words_close_up_and_one_is_left(texts: Tensor) -> None:
    for level in range(1, 10):
        dropped = SHIFTS["word_drop"].at(texts, level)
        for before, after in zip(texts.tolist(), dropped.tolist(), strict=True):
            words = [word for word in before if word]
            kept = max(len(words) - round(level / 10 * len(words)), min(len(words), 1))
            assert all(after[:kept])
            assert not any(after[kept:])
            rest = iter(words)
            assert all(word in rest for word in after[:kept])  # in their order


def test_shuffled_words_are_the_same_words_in_other_places(texts: Tensor) -> None:
    for level in range(1, 10):
        shuffled = SHIFTS["word_shuffle"].at(texts, level)
        assert torch.equal(shuffled.sort(1).values, texts.sort(1).values)
        moved, hit = (shuffled != texts).sum(1), (level / 10 * real(texts)).round()
        assert (moved <= hit).all()
        # a random order leaves one word where it was on average, with variance 1
        expected = (hit - 1).clamp_min(0).sum()
        assert abs(moved.sum() - expected) < 4 * len(texts) ** 0.5
    assert torch.equal(shuffled == 0, texts == 0)


def test_what_is_lacking_or_no_tokens_is_named(texts: Tensor) -> None:
    with pytest.raises(UserError, match="word_swap needs the number of different tokens"):
        SHIFTS["word_swap"].at(texts, 1)
    with pytest.raises(UserError, match=r"expects tokens.* torch\.float32"):
        SHIFTS["word_drop"].at(torch.rand(2, 5), 1)
    with pytest.raises(UserError, match="typos needs the raw text"):
        SHIFTS["typos"].at(texts, 1)
    with pytest.raises(UserError, match="the same kind of inputs"):
        find_computed_shift("word_drop | shear")
    with pytest.raises(UserError, match="at least one word, got 1"):
        SHIFTS["word_swap"].at(texts, 1, tokens=1)


def test_two_word_shifts_in_a_row(texts: Tensor) -> None:
    both = find_computed_shift("word_drop | word_swap")
    apart = SHIFTS["word_swap"].at(SHIFTS["word_drop"].at(texts, 4), 4, tokens=TOKENS)
    assert torch.equal(both.at(texts, 4, tokens=TOKENS), apart)


def test_typos_are_keyed_by_seed_example_and_level() -> None:
    whole = typos(RAW, 0.3, seed=2)
    assert whole == typos(RAW, 0.3, seed=2)
    assert whole[1:] == typos(RAW[1:], 0.3, seed=2, examples=torch.arange(1, 4))
    assert whole != typos(RAW, 0.3, seed=3)
    assert whole != typos(RAW, 0.3, seed=2, level=2)
    assert typos(RAW, 0.0) == RAW
    with pytest.raises(UserError, match="share from 0 to 1"):
        typos(RAW, 1.5)


def test_typos_are_single_and_leave_all_but_letters_alone() -> None:
    text = "abcdefghij" * 2000
    typed = typos([text], 0.02)[0]
    # a mistake changes the length by -1, 0, 0 or 1
    assert abs(len(typed) - len(text)) < 60
    kinds = scipy.stats.binomtest(len(text) - len(typed) + 200, 400).pvalue
    assert kinds > 1e-3
    for level in range(1, 10):
        typed = typos(RAW, LETTER_SHARES[level])[1]
        assert [mark for mark in typed if not mark.isalpha()] == list(" ; 42  '!")


def test_distance_of_typos_grows_with_the_share() -> None:
    text = "the quick brown fox jumps over the lazy dog " * 40
    same = [
        sum(map(str.__eq__, typos([text], share)[0].split(" "), text.split(" ")))
        for share in LETTER_SHARES
    ]
    assert all(more > fewer for more, fewer in itertools.pairwise(same))


VOCABULARY = {word: number for number, word in enumerate(["one", "two", "three", "four"], start=1)}


def encode(texts: list[str] | tuple[str, ...]) -> Tensor:
    rows = [[VOCABULARY[word] for word in text.split() if word in VOCABULARY] for text in texts]
    return torch.tensor([(row + [0] * 8)[:8] for row in rows])


def text_data() -> Examples:
    raw = [" ".join(list(VOCABULARY)[: 1 + number % 4]) * (1 + number % 2) for number in range(24)]
    return Examples(encode(raw), torch.arange(24) % 2, tokens=5, texts=Texts(raw, encode))  # type: ignore[arg-type]


def test_a_text_model_is_scored_under_words_and_typos() -> None:
    model = nn.Sequential(nn.EmbeddingBag(5, 8, padding_idx=0), nn.Linear(8, 2))
    data, names = text_data(), ["typos", "word_swap_90", "word_drop | word_shuffle"]
    shifts = [find_computed_shift(name) for name in names]
    whole, cut = (score_under_shift(model, data, shifts, batch_size=size) for size in (500, 7))
    assert whole["prediction"].equals(cut["prediction"])
    assert set(whole["shift"].cast(str)) == {"clean", *names}
    assert data.texts is not None
    tokens = SHIFTS["typos"].at(data.inputs, 9, texts=data.texts)
    assert torch.equal(tokens, encode(typos(data.texts.raw, 0.5, level=9)))
    with pytest.raises(UserError, match="typos needs the raw text"):
        score_under_shift(model, Examples(data.inputs, data.labels, tokens=5), [SHIFTS["typos"]])


def test_texts_of_other_examples_are_refused() -> None:
    data = text_data()
    assert data.texts is not None
    short = Texts(data.texts.raw, lambda raw: torch.ones(len(raw), 3).long())
    with pytest.raises(UserError, match=r"shape \(24, 8\), got \(24, 3\)"):
        SHIFTS["typos"].at(data.inputs, 3, texts=short)
