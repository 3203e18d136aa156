"""Registering: what it answers, what it stores, what it announces, and what it refuses."""

from __future__ import annotations

from ..bench import POLL, SYNC, Bench
from ..catalogue import check
from ..shapes import REGISTERED
from ..workflows import serve, step

NOBODY = "conformance-nobody"


@check("protocol.md")
def register_answer(bench: Bench) -> None:
    """`register` answers with a `worker_id`, the durations that hold here in milliseconds, and name and version of each definition."""
    one, two = bench.job("one"), bench.job("two")
    answer = bench.register(one, two).shaped(REGISTERED)
    answer.expect([each.get("name") for each in answer["definitions"]] == [one["name"], two["name"]], "`definitions` with both names, in their order")
    answer.expect(all(isinstance(each.get("version"), str) and each["version"] for each in answer["definitions"]), "a `version` for each definition")


@check("protocol.md")
def register_without_definitions(bench: Bench) -> None:
    """A worker may register without definitions: another one has brought them, or its server knows them."""
    answer = bench.register()
    answer.shaped(REGISTERED)
    answer.expect(answer["definitions"] == [], "no `definitions`")


@check("worker.md")
def register_new_session(bench: Bench) -> None:
    """A name that registers again is a new session, and the old one goes on."""
    job = bench.job()
    first, second = bench.session(job), bench.session(job)
    second.told.expect(first.id != second.id, f"another `worker_id` than {first.id}")
    first.gives_nothing()


@check("protocol.md")
def register_same_content(bench: Bench) -> None:
    """Storing a definition is idempotent: the same content has the same version, whatever the order of its keys."""
    job = bench.job(timeout_ms=60_000)
    first = bench.register(job).ok()
    again = bench.register(dict(reversed(list(job.items())))).ok()
    again.expect(again["definitions"] == first["definitions"], f"the version of before: {first['definitions']}")


@check("protocol.md")
def register_other_content(bench: Bench) -> None:
    """A definition of other content is another version, under the same name and revision."""
    first = bench.register(bench.job(timeout_ms=60_000)).ok()
    other = bench.register(bench.job(timeout_ms=90_000)).ok()
    other.expect(other["definitions"][0]["version"] != first["definitions"][0]["version"], f"another version than {first['definitions'][0]['version']}")


@check("protocol.md")
def register_input_schemas(bench: Bench) -> None:
    """The input schemas of typed bodies travel along outside the hash: with them a definition has the same version."""
    job = bench.job()
    first = bench.register(job).ok()
    typed = bench.register({**job, "input_schemas": {"work": {"type": "integer"}}}).ok()
    typed.expect(typed["definitions"] == first["definitions"], f"the version of before: {first['definitions']}")


@check("protocol.md")
def register_all_faults(bench: Bench) -> None:
    """All faults of all definitions come in one 400 that names each workflow, and nothing of that call is stored."""
    good, no_steps = bench.job("good"), bench.workflow("no-steps")
    looped = bench.workflow("looped", step("one", "two"), step("two", "one"))
    error = (answer := bench.register(good, no_steps, looped)).refused(400)
    answer.expect(all(spec["name"] in error["message"] for spec in (no_steps, looped)), f"both {no_steps['name']} and {looped['name']} in the message")
    bench.session().claim(serves=[serve(good)]).refused(409, "unknown_definition")


@check("protocol.md")
def register_at_most_1000(bench: Bench) -> None:
    """At most 1,000 definitions come in one registration."""
    bench.register(*(bench.job(f"job-{number}") for number in range(1_001))).refused(400)


@check("protocol.md")
def register_callable_key(bench: Bench) -> None:
    """A callable key that the server does not hold is refused, naming the workflow, the step and `key_expr`."""
    waits = bench.workflow("waits", {"name": "hold-on", "kind": "wait", "wait": {"event": "paid", "key_callable": True}})
    error = (answer := bench.register(waits)).refused(400)
    answer.expect(all(name in error["message"] for name in (waits["name"], "hold-on", "key_expr")), "the workflow, the step and `key_expr` in the message")


@check("protocol.md")
def register_elsewhere(bench: Bench) -> None:
    """An `organization`, a `project` or an app that is not the key's is 404."""
    bench.register(organization=NOBODY).refused(404)
    bench.register(project=NOBODY).refused(404)
    bench.register(app=NOBODY).refused(404)


@check("protocol.md")
def register_needs_sync(bench: Bench) -> None:
    """A key with `workflows.workers.poll` alone may register, and not bring definitions: 403, which names `workflows.apps.sync`."""
    poller = bench.other_key(POLL)
    bench.register(wire=poller).ok()
    error = (answer := bench.register(bench.job(), wire=poller)).refused(403)
    answer.expect(SYNC in error["message"], f"{SYNC} in the message")


@check("protocol.md")
def announce(bench: Bench) -> None:
    """`announce` in a claim makes its session one that serves these stored definitions: runs of them can be started."""
    job = bench.job()
    first = bench.session(job)
    version = first.told["definitions"][0]["version"]
    first.leave().ok()
    other = bench.session()
    bench.ask_start(job).refused(409, "workflow_not_announced")
    other.claim(serves=[], announce=[f"{job['name']}@{version}"]).ok()
    bench.ask_start(job).ok(201)


@check("protocol.md")
def announce_unknown(bench: Bench) -> None:
    """An announcement of a definition that is not stored is 409 `unknown_definition`."""
    bench.session().claim(serves=[], announce=[f"{bench.named('nothing')}@0123456789abcdef"]).refused(409, "unknown_definition")


@check("protocol.md")
def announce_needs_sync(bench: Bench) -> None:
    """`serves` needs `workflows.workers.poll` alone; `announce` needs `workflows.apps.sync`, else 403 that names it."""
    job = bench.job()
    version = bench.session(job).told["definitions"][0]["version"]
    poller = bench.session(wire=bench.other_key(POLL))
    poller.gives_nothing(serves=[serve(job)])
    error = (answer := poller.claim(announce=[f"{job['name']}@{version}"])).refused(403)
    answer.expect(SYNC in error["message"], f"{SYNC} in the message")


@check("protocol.md")
def leave(bench: Bench) -> None:
    """After `leave` a session's announcements have ended, and the session is not known any more."""
    job = bench.job()
    session = bench.session(job)
    bench.ask_start(job).ok(201)
    session.leave().ok()
    bench.ask_start(job).refused(409, "workflow_not_announced")
    session.claim().refused(409, "unknown_worker")
