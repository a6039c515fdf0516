"""Where the project and its files are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
STRIPES = ROOT / "tests" / "helpers" / "stripes.toml"
