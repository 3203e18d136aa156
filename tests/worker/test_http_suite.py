"""The worker behaves over HTTP as it does in the server's own process: the same tests, with a scripted server behind an address.

Left out are those about what only a direct transport has: a scope around bodies, connections to let go of, maintenance, a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ezgh_workflows_django.definitions.graph import Workflow
from ezgh_workflows_django.testing.scripted import ScriptedTransport
from ezgh_workflows_django.worker import Worker
from ezgh_workflows_django.worker.transports.over_http import HttpTransport

from .bench import Ear, Running
from .served import KEY, Served

# ruff: noqa: F401 - pytest finds the tests by these names, and `work` below is what makes them tests of HTTP
from .test_durable_worker import (
    test_a_body_whose_time_is_up_is_told_by_its_next_word,
    test_a_lease_that_is_lost_within_a_word_is_acknowledged,
    test_a_parked_function_holds_no_place_and_ends_in_its_next_lease,
)
from .test_heartbeat import (
    test_a_fenced_body_is_acknowledged_once_it_has_ended,
    test_an_async_body_whose_run_ended_is_cancelled_and_acknowledged,
    test_heartbeats_go_on_to_the_last_body_and_a_cancel_reaches_it_while_draining,
    test_heartbeats_go_on_while_an_outcome_waits_for_its_answer,
)
from .test_loop import (
    test_a_body_that_calls_sys_exit_fails_and_the_next_one_runs,
    test_a_body_whose_start_is_refused_does_not_run,
    test_a_claim_asks_for_ten_at_most_and_says_what_is_served,
    test_a_claim_never_asks_for_more_than_there_is_room_for,
    test_a_claim_repeated_after_a_lost_reply_has_the_same_id_and_brings_the_same_lease,
    test_a_lost_session_is_registered_again,
    test_a_registration_is_repeated_until_the_server_is_there,
    test_a_server_that_asks_for_a_wait_is_asked_again_after_it,
    test_a_server_that_gives_the_same_lease_twice_gets_one_body,
    test_a_start_whose_answer_is_lost_is_said_again_and_the_body_runs_once,
    test_a_step_is_started_run_and_reported,
    test_a_step_that_is_not_held_is_unservable_and_never_started,
    test_a_worker_that_is_refused_for_good_stops_loudly,
    test_an_async_body_runs_beside_others_on_the_loop,
    test_started_goes_before_the_body,
    test_started_goes_out_once_for_the_whole_batch,
    test_until_idle_waits_for_what_a_body_makes_ready,
)
from .test_reporter import (
    test_already_applied_is_a_success,
    test_already_applied_with_another_outcome_is_said,
    test_an_outcome_that_is_refused_is_dropped,
    test_an_outcome_whose_reply_is_lost_is_posted_again_and_the_body_is_not_run_again,
    test_an_output_the_server_cannot_store_fails_the_step_permanently_with_its_text,
    test_not_started_is_loud,
    test_one_refused_outcome_does_not_touch_its_neighbours,
    test_outcomes_of_bodies_that_finish_together_go_out_together,
)
from .test_shutdown import (
    test_a_body_that_stops_after_its_grace_is_handed_back_ended,
    test_a_body_that_will_not_stop_is_handed_back_unended,
    test_a_goodbye_that_fails_is_only_a_warning,
    test_an_idle_worker_stops_at_once_with_code_0_and_a_goodbye,
    test_an_outcome_is_still_sent_when_the_server_comes_back_while_stopping,
    test_outcomes_that_cannot_be_sent_make_the_end_unclean,
    test_stopping_twice_is_stopping_once,
    test_what_could_not_be_started_yet_goes_back,
    test_what_was_given_while_stopping_goes_back_untouched,
)


class Interrupting(HttpTransport):
    """A way to a scripted server that hears of an interruption even while no claim is held there."""

    def __init__(self, served: Served) -> None:
        super().__init__(served.url, KEY)
        self._script = served.script

    def interrupt(self) -> None:
        super().interrupt()
        self._script.interrupt()


@pytest.fixture
def work(ear: Ear) -> Iterator[Callable[..., Running]]:
    """As the other suite's, but that the worker reaches the scripted server by its address."""
    running: list[Running] = []
    served: list[Served] = []

    def start(script: ScriptedTransport, *workflows: Workflow, **options: Any) -> Running:
        served.append(Served(script))
        usual: dict[str, Any] = {"listener": ear, "grace": 0.2, "maintenance": False}
        worker = Worker(Interrupting(served[-1]), workflows=workflows, **(usual | options))
        running.append(Running(worker))
        return running[-1]

    yield start
    for one in running:
        one.stop()
    for one_served in served:
        one_served.close()
