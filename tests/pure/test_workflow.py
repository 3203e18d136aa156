"""Validation is complete and early (spec: authoring.md "A graph"; cases B12, B13, B53, B61)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ezgh_workflows_django import Concurrency, Cron, InvalidWorkflow, RateLimit, Retry, Sleep, Step, Wait, Workflow
from ezgh_workflows_django.errors import UnknownStep
from ezgh_workflows_django.protocol.states import StepKind


def body(input: Any) -> Any:
    return input


def step(name: str = "a", **options: Any) -> Step:
    kinds = {"run", "wait", "sleep"} & set(options)
    return Step(name, **(options if kinds else {"run": body, **options}))


def faults_of(make: Callable[[], Workflow]) -> list[str]:
    with pytest.raises(InvalidWorkflow) as caught:
        make()
    return list(caught.value.faults)


def of_step(**options: Any) -> list[str]:
    return faults_of(lambda: Workflow("order", steps=[step(**options)]))


def chain(length: int) -> list[Step]:
    return [step(f"s{n}", after=[f"s{n - 1}"] if n else []) for n in range(length)]


def layers(width: int, depth: int) -> list[Step]:
    return [step(f"s{layer}-{n}", after=[f"s{layer - 1}-{m}" for m in range(width)] if layer else []) for layer in range(depth) for n in range(width)]


def diamonds(count: int) -> list[Step]:
    steps = [step("top0")]
    for n in range(count):
        steps += [step(f"left{n}", after=[f"top{n}"]), step(f"right{n}", after=[f"top{n}"]), step(f"top{n + 1}", after=[f"left{n}", f"right{n}"])]
    return steps


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"name": "Reserve"}, "a step's name matches"),
        ({"name": "a" * 64}, "a step's name matches"),
        ({"name": "a\n"}, "a step's name matches"),
        ({"name": "on_failure"}, "reserved"),
        ({"run": body, "sleep": Sleep(1)}, "it has run and sleep of run, wait and sleep: give exactly one"),
        ({"run": None}, "it has none of run, wait and sleep"),
        ({"run": lambda a, b: None}, "takes a, b"),
        ({"run": 5}, "5 is not callable"),
        ({"timeout": 0}, "timeout: 0 is out of range"),
        ({"timeout": timedelta(hours=24, seconds=1)}, "timeout: 1 day, 0:00:01 is out of range"),
        ({"timeout": "30s"}, "timeout: '30s' is no duration"),
        ({"after": None}, "the names of steps are text, in after too"),
        ({"after": 5}, "the names of steps are text, in after too"),
        ({"transactional": b"x"}, "transactional: b'x' is neither True nor False"),
        ({"transactional": timedelta(1)}, "is neither True nor False"),
        ({"sleep": Sleep(timedelta(days=3_651))}, "sleep: duration"),
        ({"sleep": Sleep(1e18)}, "sleep: duration"),
        ({"sleep": Sleep(-1)}, "sleep: duration"),
        ({"sleep": 5}, "sleep: give a Sleep, not int"),
        ({"sleep": Sleep(None)}, "sleep: duration: give a duration"),  # type: ignore[arg-type]  # the fault under test
        ({"sleep": Sleep(1), "timeout": 5}, "timeout is for run steps"),
        ({"sleep": Sleep(1), "retry": Retry()}, "retry is for run steps"),
        ({"wait": Wait("x"), "delivery": "at_most_once"}, "delivery is for run steps"),
        ({"wait": Wait("x"), "timeout": 5}, "Wait(timeout=…)"),
        ({"wait": Wait("")}, "event: the name is empty"),
        ({"wait": Wait("a\0")}, "control character"),
        ({"wait": Wait("x" * 129)}, "129 characters"),
        ({"wait": Wait("x", key="k" * 256)}, "256 characters"),
        ({"wait": Wait("x", key=1.5)}, "key: 1.5"),  # type: ignore[arg-type]  # the fault under test
        ({"wait": Wait("x", key="a", key_expr="labels.x")}, "give one"),
        ({"wait": Wait("x", key_expr="labels.")}, "does not compile"),
        ({"wait": Wait("x", key_expr="steps.await-payment.id")}, 'write steps["await-payment"]'),
        ({"wait": Wait("x", timeout=timedelta(days=3_651))}, "timeout"),
        ({"wait": Wait("x", timeout=0)}, "timeout"),
        ({"wait": Wait("x", lookback=-1)}, "lookback"),
        ({"wait": Wait("x", on_timeout="ignore")}, "on_timeout: 'ignore' is none of fail, continue"),
        ({"delivery": "exactly_once"}, "delivery: 'exactly_once'"),
        ({"retry": Retry(max_attempts=0)}, "max_attempts: 0"),
        ({"retry": Retry(factor=1e308)}, "factor: 1e+308"),
        ({"retry": Retry(factor=0.5)}, "factor: 0.5"),
        ({"retry": Retry(initial=-1)}, "initial: -1"),
        ({"retry": Retry(maximum=1e18)}, "maximum: 1e+18"),
        ({"retry": Retry(jitter=float("nan"))}, "jitter: nan"),
        ({"retry": Retry(on={"Bad Class"})}, "on: "),
        ({"retry": Retry(on={"any"})}, 'on: "any" is all classes there are: write on="any"'),
        ({"retry": Retry(on=("timeout", "any"))}, 'on: "any" is all classes there are: write on="any"'),
        ({"retry": Retry(exhausted="stop")}, "exhausted: 'stop'"),
        ({"retry": 3}, "retry: give a Retry, not int"),
        ({"input": {"n": "${payload.}"}}, "does not compile"),
        ({"input": {"n": "${nobody.x}"}}, "names nobody"),
        ({"input": {"n": "${steps.gone.x}"}}, "names step gone"),
        ({"input": {"n": "${steps.a.x}"}}, "names step a, which does not come before it: its output is never there"),
        ({"wait": Wait("x", key_expr="steps.a.x")}, "key_expr: expression `steps.a.x`: names step a, which does not come before it"),
        ({"input": {"n": "${payload"}}, "never closed"),
        ({"input": {"n": float("nan")}}, "input.n: is NaN"),
        ({"input": {1: 2}}, "not plain JSON"),
        ({"input": "${" * 100_000}, "never closed"),
        ({"input": "${1}" * 50_000}, "50000 expressions, at most 1000"),
        ({"after": ["a"]}, "cycle: a -> a"),
        ({"after": ["gone"]}, "it comes after 'gone', which is no step here"),
    ],
)
def test_a_faulty_step_is_refused_by_name(options: dict[str, Any], fault: str) -> None:
    found = of_step(**options)
    assert any(fault in text for text in found), found
    assert all(text.startswith("workflow order") for text in found)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"steps": []}, "it has no steps"),
        ({"steps": [step("a"), step("a")]}, "two steps named a"),
        ({"steps": [body]}, "steps are Step objects, not function"),
        ({"name": "Order"}, "a workflow's name matches"),
        ({"name": "../order"}, "a workflow's name matches"),
        ({"revision": 1}, "revision 1: a revision is text"),
        ({"revision": "a@b"}, "revision 'a@b'"),
        ({"timeout": timedelta(days=2)}, "timeout: 2 days"),
        ({"deadline": 0}, "deadline: 0"),
        ({"deadline": timedelta(days=3_651)}, "deadline"),
        ({"on_failure": lambda a, b: None}, "on_failure: "),
        ({"cron": Cron("0 0 31 2 *")}, "cron: expression: '0 0 31 2 *'"),
        ({"cron": Cron("@daily")}, "five fields"),
        ({"cron": Cron("* * * * * *")}, "five fields"),
        ({"cron": Cron("0 9 * * *", timezone="Mars/Olympus")}, "timezone: 'Mars/Olympus'"),
        ({"cron": Cron("0 9 * * *", overlap="never")}, "overlap: 'never'"),
        ({"cron": Cron("0 9 * * *", catch_up="most")}, "catch_up: 'most'"),
        ({"cron": Cron("0 9 * * *", payload=float("inf"))}, "payload: is Infinity"),
        ({"cron": Cron("0 9 * * *", labels={"a": 1})}, "label 'a' is int"),  # type: ignore[dict-item]  # the fault under test
        ({"cron": Cron("0 9 * * *", labels={"": "x"})}, "cron: a label needs a name"),
        ({"cron": "0 9 * * *"}, "cron: give a Cron, not str"),
        ({"cron": 5}, "cron: give a Cron, not int"),
        ({"cron": {"0 9 * * *": "x"}}, "cron: give a Cron, not dict"),
        ({"concurrency": Concurrency(0)}, "limit: 0"),
        ({"concurrency": Concurrency(1, key_expr="steps.a.x")}, "names steps, which is empty when a run starts"),
        ({"concurrency": Concurrency(1, key_expr='steps["a"]')}, "names steps, which is empty when a run starts"),
        ({"concurrency": Concurrency(1, key_expr="state.x")}, "names state, which is empty when a run starts"),
        ({"concurrency": Concurrency(1, key_expr="1 +")}, "does not compile"),
        ({"concurrency": Concurrency(1, on_limit="drop")}, "on_limit: 'drop'"),
        ({"rate": RateLimit(5, per=0)}, "per: 0"),
    ],
)
def test_a_faulty_workflow_is_refused_by_name(options: dict[str, Any], fault: str) -> None:
    found = faults_of(lambda: Workflow(**{"name": "order", "steps": [step()], **options}))
    assert any(fault in text for text in found), found


@pytest.mark.parametrize("cron", ["0 9 * * *", 5, {"0 9 * * *": "x"}, [Cron("0 9 * * *"), "0 9 * * *"], [None]], ids=repr)
def test_what_is_no_cron_is_one_fault(cron: Any) -> None:
    assert len(faults_of(lambda: Workflow("order", steps=[step()], cron=cron))) == 1


@pytest.mark.parametrize("steps", [None, 5, "ab", {"a": 1}, b"ab"], ids=repr)
def test_what_is_no_list_of_steps_is_one_fault(steps: Any) -> None:
    assert faults_of(lambda: Workflow("order", steps)) == [f"workflow order: steps are Step objects, not {type(steps).__name__}"]


def graph(**options: Any) -> Workflow:
    """first, then left and right, then last, which has these options."""
    steps = [step("first"), step("left", after=["first"]), step("right", after=["first"]), step("last", after=["left"], **options)]
    return Workflow("order", steps=steps)


@pytest.mark.parametrize("name", ["right", "last"])
@pytest.mark.parametrize("written", ["steps.{}.x", 'steps["{}"].x', "has(steps.{0}) ? steps.{0}.x : 1", "payload.list.map(i, steps.{}.x)"])
def test_a_step_that_does_not_come_before_is_refused_by_name(name: str, written: str) -> None:
    source = written.format(name)
    why = f"names step {name}, which does not come before it: its output is never there"
    [of_template] = faults_of(lambda: graph(input={"n": f"${{{source}}}"}))
    [of_key] = faults_of(lambda: graph(wait=Wait("paid", key_expr=source)))
    assert of_template == f"workflow order, step last: input: expression `{source}`: {why}"
    assert of_key == f"workflow order, step last: wait: key_expr: expression `{source}`: {why}"


@pytest.mark.parametrize("source", ["steps.left.x", "steps.first.x", "has(steps.right.x)", 'has(steps["right"].x) || has(steps.last.x)', "has(steps.right)"])
def test_a_step_before_may_be_named_and_any_other_may_be_asked_for(source: str) -> None:
    assert graph(input={"n": f"${{{source}}}"}).steps
    assert graph(wait=Wait("paid", key_expr=source)).steps


def test_a_step_may_be_asked_for_where_slots_are_counted() -> None:
    assert Workflow("order", steps=[step()], concurrency=Concurrency(1, key_expr='has(state.x) ? "a" : payload.steps')).steps


def test_a_large_graph_of_templates_is_judged_in_a_second() -> None:
    """Case B61. Every step names the first one."""
    steps = [step(f"s{n}", after=[f"s{n - 1}"] if n else [], input={"n": "${steps.s0.x}"} if n else None) for n in range(5_000)]
    begin = time.process_time()
    assert Workflow("large", steps=steps).steps
    assert time.process_time() - begin < 1


@pytest.mark.parametrize("name", [None, 5, ["a"]], ids=repr)
def test_a_name_that_is_no_text_is_a_fault_beside_an_expression(name: Any) -> None:
    found = faults_of(lambda: Workflow("order", steps=[step(), Step(name, run=body, input="${steps.a.x}")]))
    assert "workflow order: the names of steps are text, in after too" in found


def test_in_a_cycle_no_step_is_said_to_be_out_of_place() -> None:
    steps = [step("a", after=["b"], input="${steps.b.x}"), step("b", after=["a"], input="${steps.a.x}")]
    assert faults_of(lambda: Workflow("order", steps=steps)) == ["workflow order: the steps form a cycle: a -> b -> a"]


def test_all_faults_come_at_once() -> None:
    found = faults_of(
        lambda: Workflow("Order", steps=[step("a", after=["b"], timeout=0), step("b", after=["a", "gone"]), step("b", sleep=Sleep(-1))], cron=Cron("x"))
    )
    assert found[0].startswith("workflow Order: a workflow's name")
    assert len(found) == 7
    assert sum("step a: timeout" in text for text in found) == 1
    assert found[-1] == "workflow Order: the steps form a cycle: a -> b -> a"


def test_a_cycle_is_named_in_order() -> None:
    """Case B61: also behind a branch that has none."""
    steps = [step("root"), step("x", after=["root"]), step("c", after=["b"]), step("b", after=["x", "a"]), step("a", after=["c"])]
    assert faults_of(lambda: Workflow("order", steps=steps))[-1].endswith("cycle: c -> a -> b -> c")


@pytest.mark.parametrize("steps", [diamonds(30), chain(5_000), layers(40, 40)], ids=["diamonds", "chain", "layers"])
def test_large_graphs_are_judged_in_a_second(steps: list[Step]) -> None:
    """Case B61. Measured on the processor's clock: other work on the machine does not count."""
    begin = time.process_time()
    workflow = Workflow("large", steps=steps)
    assert time.process_time() - begin < 1
    assert len(workflow.plan.ancestors(steps[-1].name)) == len(workflow.plan.steps) - (40 if steps[-1].name == "s39-39" else 1)


def test_a_large_cycle_is_found_without_recursion() -> None:
    steps = chain(5_000)
    steps[0] = step("s0", after=["s4999"])
    assert "cycle: s0 -> s1 -> s2" in faults_of(lambda: Workflow("large", steps=steps))[0]


def test_sleep_zero_and_a_wait_without_a_key_are_fine() -> None:
    workflow = Workflow("order", steps=[Step("nap", sleep=Sleep(0)), Step("approval", wait=Wait("approved"))])
    assert [item.kind for item in workflow.steps] == [StepKind.SLEEP, StepKind.WAIT]


def test_one_parent_may_be_given_as_it_is() -> None:
    assert step(after="reserve").after == ("reserve",)


def test_a_body_is_found_by_its_step() -> None:
    workflow = Workflow("order", steps=[step("a"), Step("nap", sleep=Sleep(0))], on_failure=body)
    assert workflow.body("a").function is body
    assert workflow.body("on_failure").function is body
    with pytest.raises(UnknownStep, match="holds no body for step 'nap'"):
        workflow.body("nap")
    with pytest.raises(UnknownStep, match="has no step 'gone'"):
        workflow.step("gone")


def test_a_workflow_knows_the_line_it_is_made_at() -> None:
    assert Workflow("order", steps=[step()]).place.partition(":")[0] == __name__
