"""What a session was found unable to serve is remembered, however many of its leases say so at one moment."""

from __future__ import annotations

import json
from functools import partial

from ezgh_workflows_django.engine import outcomes
from ezgh_workflows_django.models import Step as StepRow
from ezgh_workflows_django.models import Worker
from ezgh_workflows_django.protocol.outcomes import Outcome, Report
from tests.engine.conftest import Desk
from tests.engine.graphs import job
from tests.engine.threads import together

DEFINITIONS = 6


def test_no_ban_is_lost_where_several_are_reported_at_one_moment(transactional_db: None, desk: Desk) -> None:
    workflows = [job(f"job-{number}") for number in range(DEFINITIONS)]
    hand = desk.worker(*workflows)
    for workflow in workflows:
        workflow.start()
    reports = [Report(lease.id, Outcome.failed("unservable", "no such library")) for lease in hand.claim()]
    assert len(reports) == DEFINITIONS
    answers = together([partial(outcomes.report, [report]) for report in reports])
    assert [answer.refused for [answer] in answers] == [None] * DEFINITIONS
    assert json.loads(Worker.objects.get().unservable) == sorted(set(StepRow.objects.values_list("definition_id", flat=True)))
    assert hand.claim() == ()
