import importlib.util
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from ironworks.cli import cli
from ironworks.core.settings import Settings

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def docs() -> Any:
    spec = importlib.util.spec_from_file_location("ironworks_docs", ROOT / "scripts" / "docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.spec("CLI-2")
def test_the_reference_of_commands_is_what_make_docs_writes(tmp_path: Path) -> None:
    docs().write_commands(tmp_path / "cli.md", cli)
    assert (tmp_path / "cli.md").read_text("utf-8") == (REFERENCE / "cli.md").read_text("utf-8")


def test_the_published_schemas_are_what_make_docs_writes(tmp_path: Path) -> None:
    docs().write_schemas(tmp_path / "schemas")
    published = {path.name: path.read_text("utf-8") for path in (REFERENCE / "schemas").iterdir()}
    assert published == {path.name: path.read_text("utf-8") for path in (tmp_path / "schemas").iterdir()}


def keys(model: type[BaseModel]) -> set[str]:
    """Every key of a settings model and of the models in it."""
    found = set(model.model_fields)
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= keys(part)
    return found


def test_every_setting_is_documented() -> None:
    page = (REFERENCE / "config.md").read_text("utf-8")
    assert sorted(key for key in keys(Settings) - {"stages"} if key not in page) == []
