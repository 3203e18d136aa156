"""A process that claims quick steps in tens until there are none: `python -m tests.process.claimer`. Prints the step of each lease it got."""

from __future__ import annotations

import json
import uuid

import django

from ezgh_workflows_django.protocol.messages import ClaimRequest, Registration, Serve


def main() -> None:
    """Claim them all."""
    django.setup()
    from ezgh_workflows_django.engine import leases, workers
    from tests.process.workers.workflows import quick

    session = workers.register(Registration(worker="claimer", app="default", definitions=(quick.to_spec(),)))
    claimed: list[str] = []
    while offered := leases.claim(
        ClaimRequest(worker_id=session.worker_id, claim_id=uuid.uuid4().hex, max=10, serves=(Serve(quick.name, quick.revision),))
    ).leases:
        claimed += [lease.id for lease in offered]
    print(json.dumps(claimed))


if __name__ == "__main__":
    main()
