/** A worker for the tests of the one in the docs: bodies that fail, wait and do not listen. They talk on stdout, and hear `go` on stdin. */

import { StepFailed } from "./attempt.js";
import { main } from "./main.js";
import type { Json } from "./protocol.js";
import type { Workflow } from "./worker.js";

declare const process: { stdin: { once(name: string, heard: () => void): void } };

const told = new Promise<void>((resolve) => process.stdin.once("data", resolve));

function alone(name: string, body: Workflow["bodies"][string], more: object = {}): Workflow {
  return { definition: { name, revision: "1", steps: [{ name: "work", kind: "run", ...more }] }, bodies: { work: body } };
}

const loop: { [name: string]: Json } = {};
loop["self"] = loop;

await main("trial", [
  alone(
    "flaky",
    (number, { lease }) => {
      if (lease.attempt === 1) throw new StepFailed("busy", "not yet", 10);
      return (number as number) + lease.attempt;
    },
    { retry: { max_attempts: 2, initial_ms: 1, on: ["busy"] } },
  ),
  alone("broken", () => JSON.parse("no") as Json, { retry: { max_attempts: 2, initial_ms: 1 } }),
  alone("endless", () => loop, { retry: { max_attempts: 2 } }),
  alone("unfit", () => "a\0b", { retry: { max_attempts: 2 } }),
  alone("misnamed", () => {
    throw new StepFailed("Not A Class", "failed all the same");
  }),
  alone("deaf", () => new Promise<Json>(() => {}), { timeout_ms: 200 }),
  alone("gate", async (_, { lease, signal }) => {
    console.log("begun");
    await Promise.race([told, new Promise((resolve) => signal.addEventListener("abort", resolve))]);
    console.log(signal.aborted ? `stopped ${String(signal.reason)}` : "ended");
    return lease.attempt;
  }),
  { definition: { name: "elsewhere", revision: "1", steps: [{ name: "work", kind: "run" }] }, bodies: {} },
]);
