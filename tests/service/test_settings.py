from __future__ import annotations

import re
from pathlib import Path

import pytest

import service
from service.settings import Settings, SettingsError, load_settings, variable

TEXT = (Path(service.__file__).parents[1] / "docs" / "service.md").read_text()


def test_every_setting_is_documented() -> None:
    rows = re.findall(r"^\| `(SCHEDC_\w+)` \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
    documented = {name: meaning for name, _, meaning in rows}
    assert documented == {variable(name): field.description for name, field in Settings.model_fields.items()}


def test_documented_defaults_are_the_defaults() -> None:
    for name, field in Settings.model_fields.items():
        if not field.is_required() and field.default_factory is None:
            assert re.search(rf"^\| `{variable(name)}` \| `{field.default}` \|", TEXT, re.MULTILINE), name


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDC_WORKERS", "3")
    monkeypatch.setenv("SCHEDC_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("SCHEDC_COMPILE_TIMEOUT", "2.5")
    loaded = load_settings()
    assert (loaded.workers, loaded.cache_dir, loaded.compile_timeout) == (3, Path("/somewhere"), 2.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("WORKERS", "none"), ("WORKERS", "0"), ("COMPILE_TIMEOUT", "inf"), ("LOG_LEVEL", "loud"), ("BODY_BYTES", "")],
)
def test_a_wrong_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SCHEDC_{name}", value)
    with pytest.raises(SettingsError, match=f"SCHEDC_{name}='{value}': "):
        load_settings()
