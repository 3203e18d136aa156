"""The conformance kit without a server: its report, its arguments and exit codes, and its page in the docs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ezgh_workflows_django.conformance import Report, reporting
from ezgh_workflows_django.conformance.__main__ import BROKEN, CONFORMING, UNUSABLE, main
from ezgh_workflows_django.conformance.answers import MOST_SHOWN, Answer, shown
from ezgh_workflows_django.conformance.bench import Bench
from ezgh_workflows_django.conformance.catalogue import CHECKS, check, chosen
from ezgh_workflows_django.conformance.findings import Mismatch, Outcome, Result, Seen
from ezgh_workflows_django.conformance.shapes import LEASE, MOMENT, Durations, error_faults, faults
from ezgh_workflows_django.errors import InvalidArgument
from ezgh_workflows_django.worker.transports.replies import Reply

from .conftest import ROOT

PAGES = {"api.md", "authoring.md", "engine.md", "protocol.md", "worker.md"}
ONE, TWO, THREE = list(CHECKS.values())[:3]


def report() -> Report:
    """One check of each outcome."""
    seen = (Seen("POST v1/api/x {}", "200 with an object", "200 {}"), Seen("POST v1/api/y {}", "409", "500 null"))
    results = (
        Result(ONE, Outcome.PASSED, seen[:1]),
        Result(TWO, Outcome.FAILED, seen, "expected 409"),
        Result(THREE, Outcome.NOT_APPLICABLE, (), "this key may not"),
    )
    return Report("http://there/", "conformance", results, ("app conformance", "7 runs of them, all over"))


# --- the report


def test_a_failure_is_told_in_full() -> None:
    opening = reporting.to_text(report()).split("\n\n")[0].splitlines()
    assert opening == [
        f"FAILED {TWO.name}",
        f"  promise   {TWO.promise} ({TWO.page})",
        "  sent      POST v1/api/y {}",
        "  expected  409",
        "  came      500 null",
        "  why       expected 409",
    ]


def test_the_text_ends_with_a_table_what_is_left_and_the_counts() -> None:
    lines = reporting.to_text(report()).splitlines()
    table = [re.split(r"  +", line) for line in lines[7:11]]
    assert table == [
        ["result", "check", "promise, or why not"],
        ["passed", ONE.name, ONE.promise],
        ["failed", TWO.name, "expected 409"],
        ["not applicable", THREE.name, "this key may not"],
    ]
    assert lines[12:] == ["Left behind:", "  app conformance", "  7 runs of them, all over", "", "1 passed, 1 failed, 1 not applicable"]


def test_the_json_has_all_that_was_judged() -> None:
    told = json.loads(json.dumps(reporting.to_json(report())))
    assert (told["conforming"], told["counts"]) == (False, {"passed": 1, "failed": 1, "not_applicable": 1})
    assert [each["result"] for each in told["checks"]] == ["passed", "failed", "not applicable"]
    assert told["checks"][1]["seen"][-1] == {"sent": "POST v1/api/y {}", "expected": "409", "came": "500 null"}


def test_a_report_without_a_failure_conforms() -> None:
    whole = report()
    assert not whole.is_conforming
    assert Report(whole.server, whole.app, whole.results[::2], ()).is_conforming


# --- expectations


def test_an_expectation_is_noted_and_ends_the_check_where_it_does_not_hold() -> None:
    seen: list[Seen] = []
    answer = Answer("GET x", Reply("GET x", 200, {"id": 7}), seen)
    assert answer.ok()["id"] == 7
    with pytest.raises(Mismatch):
        answer.refused(409, "fenced")
    assert [each.expected for each in seen] == ["200 with an object", "`id` in the answer", '409 {"error": {"code": "fenced", "message": …}}']
    assert {each.came for each in seen} == {'200 {"id": 7}'}


def test_no_answer_is_told_and_fails_every_expectation() -> None:
    seen: list[Seen] = []
    answer = Answer("GET x", None, seen, "no answer that can be read: it is down")
    with pytest.raises(Mismatch):
        answer.ok()
    assert seen[-1].came == "no answer that can be read: it is down"


@pytest.mark.parametrize("value", [None, [], {}, {"error": "no"}, {"error": {"code": "x"}}, {"error": {"code": 1, "message": "m"}}, {"detail": "no"}])
def test_what_is_not_in_the_shape_of_errors_is_found(value: object) -> None:
    assert error_faults(value)


def test_fields_of_errors_are_texts() -> None:
    assert error_faults({"error": {"code": "invalid", "message": "m", "fields": {"max": "no"}}}) == []
    assert error_faults({"error": {"code": "invalid", "message": "m", "fields": {"max": ["no"]}}}) == ["`fields`: an object of texts"]


@pytest.mark.parametrize("text", ["2026-01-31T09:00:00", "2026-01-31T09:00:00+01:00", "2026-01-31 09:00:00Z", "2026-01-31", "", 5, None])
def test_only_rfc_3339_in_utc_is_a_moment(text: object) -> None:
    assert not MOMENT.holds(text)
    assert MOMENT.holds("2026-01-31T09:00:00Z")
    assert MOMENT.holds("2026-01-31T09:00:00.123456+00:00")


def test_each_bad_field_is_named() -> None:
    assert "`token`: a whole number of 1 or more" in faults({"id": "a", "token": True}, LEASE)
    assert faults([], LEASE) == ["an object"]


def test_a_server_that_does_not_say_its_durations_is_taken_to_have_the_usual_ones() -> None:
    assert Durations.of({"lease_ttl_ms": 3_000, "recovery_ms": "soon", "offer_ttl_ms": None}) == Durations(lease_ttl=3_000)
    assert Durations.of(None) == Durations()


def test_what_is_long_is_cut() -> None:
    assert shown("x" * MOST_SHOWN) == "x" * MOST_SHOWN
    assert shown("x" * 1_000_000).endswith("… (1,000,000 characters)")


# --- the checks as a list


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_is_one_sentence_from_a_page(name: str) -> None:
    each = CHECKS[name]
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert re.fullmatch(r"\S.*[^.]\.", each.promise)
    assert each.page in PAGES


def test_checks_are_chosen_by_name_or_pattern() -> None:
    assert [each.name for each in chosen(["leave", "announce*"])] == ["announce", "announce-unknown", "announce-needs-sync", "leave"]
    assert len(chosen([])) == len(CHECKS)
    with pytest.raises(InvalidArgument, match=r"no check is named nothing-\*"):
        chosen(["leave", "nothing-*"])


def test_a_name_is_taken_once() -> None:
    def leave(bench: Bench) -> None:
        """It is taken."""

    with pytest.raises(ValueError, match="two checks are named leave"):
        check("protocol.md")(leave)


# --- arguments and exit codes


class Same(BaseHTTPRequestHandler):
    """Gives every request the same answer."""

    status = 200
    body = b"{}"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def same() -> Iterator[tuple[str, type[Same]]]:
    """A server that says the same to everything, by its address; and what it says."""
    kind = type("Its", (Same,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_broken_promise_ends_with_1(same: tuple[str, type[Same]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", same[0], "--key", "ezw_a_b", "--app", "default", "--only", "register-answer"]) == BROKEN
    told = capsys.readouterr()
    assert told.out.startswith("FAILED register-answer\n")
    assert told.out.endswith("0 passed, 1 failed, 0 not applicable\n")
    assert told.err.startswith("failed: register-answer (expected `worker_id`: a text that is not empty; ")


def test_the_report_can_be_json(same: tuple[str, type[Same]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", same[0], "--key", "ezw_a_b", "--app", "default", "--only", "leave", "--json"]) == BROKEN
    assert json.loads(capsys.readouterr().out)["counts"] == {"passed": 0, "failed": 1, "not_applicable": 0}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b'{"error": {"code": "unauthenticated", "message": "no"}}', "the server refuses this key: 401"),
        (403, b'{"error": {"code": "forbidden", "message": "no"}}', "the server refuses this key: 403"),
        (404, b"<h1>Not Found</h1>", "the URL has to be the place where the server has its `v1/api/`"),
        (302, b"", "the URL has to be the place where the server has its `v1/api/`"),
        (500, b"", "a registration was not answered with 200: 500"),
        (200, b"<h1>Welcome</h1>", "what is not JSON"),
    ],
)
def test_a_server_that_can_not_be_checked_ends_with_2(
    same: tuple[str, type[Same]], capsys: pytest.CaptureFixture[str], status: int, body: bytes, said: str
) -> None:
    same[1].status, same[1].body = status, body
    assert main(["--url", same[0], "--key", "ezw_a_b", "--app", "default"]) == UNUSABLE
    told = capsys.readouterr()
    assert told.err.startswith("nothing was checked: ")
    assert said in told.err
    assert "ezw_a_b" not in told.err + told.out


def test_a_key_that_can_not_make_an_app_is_told_what_to_name(same: tuple[str, type[Same]], capsys: pytest.CaptureFixture[str]) -> None:
    same[1].status, same[1].body = 404, b'{"error": {"code": "unknown_project", "message": "no"}}'
    assert main(["--url", same[0], "--key", "ezw_a_b"]) == UNUSABLE
    assert "name an app by --app, or --organization and --project" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", "http://127.0.0.1:9", "--key", "ezw_a_b"],
        ["--url", "ftp://there", "--key", "ezw_a_b"],
        ["--url", "http://127.0.0.1:9", "--key", "two words"],
        ["--url", "http://127.0.0.1:9", "--key", "ezw_a_b", "--only", "nothing"],
    ],
)
def test_what_can_not_be_reached_or_meant_ends_with_2(arguments: list[str]) -> None:
    assert main(arguments) == UNUSABLE


@pytest.mark.parametrize("arguments", [[], ["--url", "http://there"], ["--url", "http://there", "--key", "k", "--timeout", "0"], ["--what"]])
def test_bad_arguments_end_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("EZGH_WORKFLOWS_API_KEY", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == UNUSABLE


UNBLOCKED = """
import sys
sys.modules["django"] = None
sys.modules["httpx"] = None
from ezgh_workflows_django.conformance.__main__ import main
sys.exit(main(["--list"]))
"""


def test_the_table_of_checks_needs_neither_django_nor_httpx() -> None:
    done = subprocess.run([sys.executable, "-c", UNBLOCKED], cwd=ROOT, env={"PYTHONIOENCODING": "utf-8"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (CONFORMING, "")
    assert done.stdout.splitlines()[2].startswith("| `register-answer` | ")


# --- the docs


def test_the_page_has_the_table_of_checks_as_it_is() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert reporting.to_markdown(CHECKS.values()) in page, "the table is what `python -m ezgh_workflows_django.conformance --list` prints"


def test_the_page_has_each_option() -> None:
    page = (ROOT / "docs" / "conformance.md").read_text()
    shown = subprocess.run([sys.executable, "-m", "ezgh_workflows_django.conformance", "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--[a-z]+", shown)) - {"--help"}
    assert [option for option in sorted(options) if f"`{option}`" not in page] == []
