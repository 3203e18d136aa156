"""Values on a page: escaped, masked, cut."""

from __future__ import annotations

from typing import Any

import pytest

from ezgh_workflows_django.console import values


@pytest.mark.parametrize("name", ["password", "Password", "API_KEY", "api-key", "token"])
def test_what_stands_under_a_redacted_key_is_masked(name: str) -> None:
    assert values.masked({name: "hunter2"}) == {name: values.MASK}


def test_a_redacted_key_is_masked_at_any_depth_with_all_that_is_under_it() -> None:
    told: Any = {"user": [{"secret": {"deep": "hunter2"}, "name": "ann"}]}
    assert values.masked(told) == {"user": [{"secret": values.MASK, "name": "ann"}]}


def test_the_project_says_what_is_masked(settings: Any) -> None:
    settings.EZGH_WORKFLOWS = {"REDACT": ["iban"]}
    assert values.masked({"iban": "DE00", "password": "shown"}) == {"iban": values.MASK, "password": "shown"}


@pytest.mark.parametrize("show", [values.block, values.brief])
def test_no_form_of_a_value_shows_what_is_masked(show: Any) -> None:
    assert "hunter2" not in show('{"token":"hunter2"}')


def test_the_engines_own_token_in_the_journal_is_no_secret_but_one_below_it_is() -> None:
    assert values.masked({"token": 3, "told": {"token": "hunter2"}}, plain=values.ENGINE_KEYS) == {"token": 3, "told": {"token": values.MASK}}


def test_labels_are_masked_too() -> None:
    assert values.pairs('{"token":"hunter2","team":"blue"}') == f"token={values.MASK}, team=blue"


def test_a_block_escapes_markup() -> None:
    assert "&lt;/script&gt;" in values.block('{"a":"</script>"}')


def test_a_block_keeps_what_is_at_its_bound() -> None:
    assert "Shortened" not in values.text_block("x" * values.MAX_SHOWN)


def test_a_block_over_its_bound_says_how_much_there_is() -> None:
    shown = values.text_block("x" * (values.MAX_SHOWN + 1))
    assert "x" * values.MAX_SHOWN in shown
    assert "x" * (values.MAX_SHOWN + 1) not in shown
    assert "the first 65536 of 65537 characters" in shown


def test_a_block_is_cut_between_characters_and_escaped_after() -> None:
    """Cut the other way round, half an entity would be left at the end."""
    assert values.text_block("&" * (values.MAX_SHOWN + 1)).count("&amp;") == values.MAX_SHOWN


def test_nothing_stored_is_a_dash_and_null_is_null() -> None:
    assert (values.block(None), "null" in values.block("null")) == (values.NOTHING, True)


def test_a_line_is_short() -> None:
    assert len(values.brief(f'{{"a":"{"x" * 5_000}"}}')) == values.MAX_BRIEF
