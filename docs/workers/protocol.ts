/** The words that a worker and the server share, as they travel. Times are RFC 3339 in UTC, durations milliseconds. No code. */

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** A workflow. The server stores it under a hash of what it says: the same again is the same version. */
export interface Definition {
  name: string;
  revision: string;
  steps: Step[];
  retry?: Retry;
  timeout_ms?: number;
  deadline_ms?: number;
  /** Whether there is a body named `on_failure`, which runs once a run has failed. */
  on_failure?: boolean;
}

export interface Step {
  name: string;
  /** Only steps of the kind `run` have a body, and reach a worker. */
  kind: "run" | "wait" | "sleep";
  after?: string[];
  retry?: Retry;
  timeout_ms?: number;
  delivery?: "at_least_once" | "at_most_once";
  wait?: { event: string; key?: string; key_expr?: string; timeout_ms?: number; on_timeout?: "fail" | "continue" };
  sleep_ms?: number;
}

export interface Retry {
  max_attempts?: number;
  initial_ms?: number;
  factor?: number;
  maximum_ms?: number;
  jitter?: number;
  exhausted?: "fail" | "pause";
  /** The classes of failures that are tried again. Left out: all, but for those that no attempt mends, as `permanent`. */
  on?: string[];
}

export interface Registration {
  worker: string;
  app: string;
  concurrency: number;
  definitions: Definition[];
  sdk: string;
}

export interface Registered {
  worker_id: string;
  lease_ttl_ms: number;
  recovery_ms: number;
  heartbeat_ms: number;
  max_wait_ms: number;
  max_claim: number;
  definitions: { name: string; version: string }[];
}

export interface Claim {
  worker_id: string;
  /** The worker's own. A claim whose answer was lost is repeated under the same one, and gives the same leases. */
  claim_id: string;
  max: number;
  wait_ms: number;
  serves: { name: string; revision: string }[];
}

export interface Claimed {
  leases: Lease[];
  retry_after_ms?: number;
}

/** One attempt of a step, in this worker's hands for as long as heartbeats arrive. */
export interface Lease {
  id: string;
  token: number;
  run_id: string;
  workflow: string;
  version: string;
  revision: string;
  step: string;
  attempt: number;
  /** The run's payload, or what the parents gave: of one parent its output, of several an object by their names. */
  input: Json;
  /** Outputs of all steps before this one, by name. */
  steps: { [name: string]: Json };
  state: { [name: string]: Json };
  labels: { [name: string]: string };
  correlation_id: string;
  /** The same for every attempt of the step: give it to services that do a thing once per key. */
  idempotency_key: string;
  delivery: "at_least_once" | "at_most_once";
  traceparent: string;
  expires_at: string;
  expires_in_ms: number;
  timeout_ms: number | null;
  deadline: string | null;
  /** Of `on_failure` alone: why the run failed. */
  failure: Failure | null;
  /** Values too large to travel along: where each belongs, and by which reference it is fetched. */
  parts?: { [place: string]: string };
}

export interface Failure {
  class: string;
  message: string;
  type?: string | null;
}

export interface Complete {
  output: Json;
}

/** A class is one of the protocol's (`error`, `permanent`, `timeout`, `unservable`, `returned`, …) or any `[a-z0-9_]{1,64}` of one's own. */
export interface Fail extends Failure {
  retry_after_ms?: number;
  /** False where the body may still be at work. */
  body_ended?: boolean;
}

/** Every answer that is no 2xx. `outcome` comes with `already_applied`: how the lease had ended. */
export interface Refusal {
  error: { code: string; message: string; outcome?: { status: string } };
}
