"""Settings: where they come from, and errors that name the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.errors import SettingsError
from kilonova.service.settings import load_settings


def test_the_environment_overrides_the_file_and_the_caller_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kilonova.toml").write_text("run_lease = 1\nlog_retention_days = 2\n[serve]\nworkers = 3\n")
    monkeypatch.setenv("KILONOVA_RUN_LEASE", "4")
    monkeypatch.setenv("KILONOVA_SERVE__RUN_TIMEOUT", "inf")
    settings = load_settings(tmp_path, log_retention_days=5)
    assert (settings.run_lease, settings.log_retention_days) == (4, 5)
    assert (settings.serve.workers, settings.serve.run_timeout) == (3, float("inf"))


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("run_leas = 3", "there is no setting run_leas", "Did you mean run_lease?"),
        ("[scann]\nmax_files = 3", "there is no setting scann", "Did you mean scan?"),
        ("[serve]\nmax_upload = 3", "there is no setting serve.max_upload", "Did you mean max_upload_mb?"),
        ("[scan]\nx = 3", "there is no setting scan.x", "There are: max_bytes, max_files"),
        (
            "[lineage]\nnamespaces = 'a'\n[lineage.transport]\ntype = 'console'",
            "there is no setting lineage.namespaces",
            "Did you mean namespace?",
        ),
    ],
)
def test_an_unknown_setting_gets_an_error_with_the_closest_name(
    tmp_path: Path, text: str, problem: str, hint: str
) -> None:
    (tmp_path / "kilonova.toml").write_text(text)
    with pytest.raises(SettingsError) as raised:
        load_settings(tmp_path)
    assert (raised.value.problem, raised.value.hint) == (problem, hint)


def test_an_invalid_value_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"the setting serve\.workers is invalid"):
        load_settings(tmp_path, serve={"workers": 0})
    (tmp_path / "kilonova.toml").write_text("run_lease = \n")
    with pytest.raises(SettingsError, match="not TOML"):
        load_settings(tmp_path)
