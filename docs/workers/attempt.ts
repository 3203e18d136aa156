/** One attempt of a step: its body at work, when that is to stop, and how it ended. Sends nothing. */

import type { Complete, Fail, Json, Lease } from "./protocol.js";

/**
 * What one step does. A promise is awaited; code that keeps the event loop busy for longer than a lease lives also keeps heartbeats from being sent:
 * such work belongs in a worker thread.
 */
export type Body = (input: Json, context: Context) => Json | Promise<Json>;

/** `signal` fires when the body is to stop: its time is up, its lease or its run is lost, or the worker ends. */
export interface Context {
  readonly lease: Lease;
  readonly signal: AbortSignal;
}

/** Thrown by a body to say how its attempt failed: `permanent` is not tried again. Whatever else it throws is of the class `error`. */
export class StepFailed extends Error {
  override name = "StepFailed";
  readonly class: string;
  readonly retryAfterMs: number | undefined;

  constructor(class_: string, message: string, retryAfterMs?: number) {
    super(message);
    this.class = class_;
    this.retryAfterMs = retryAfterMs;
  }
}

export type Outcome = { call: "complete"; message: Complete } | Failed;
export type Failed = { call: "fail"; message: Fail };

/** Why a body is told to stop. `cut_off`: no heartbeat has landed for so long that the lease can't be this worker's any more. */
export type Why = "timeout" | "fenced" | "run_terminal" | "cut_off" | "shutdown";

/** What a body is given to end by itself once its signal has fired; then it is left to itself. */
const GRACE_MS = 1_000;
/** A timer of JavaScript that is to run for longer fires at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export class Attempt {
  readonly lease: Lease;
  why: Why | undefined;
  readonly #body: Body;
  readonly #lifeMs: number;
  readonly #signal = new AbortController();
  readonly #over = new AbortController();
  readonly #left: Promise<undefined>;
  #leave = (): void => {};
  #cutOff: ReturnType<typeof setTimeout> | undefined;

  /** `lifeMs` is how long the lease lives without a heartbeat, and may still come back. */
  constructor(lease: Lease, body: Body, lifeMs: number) {
    this.lease = lease;
    this.#body = body;
    this.#lifeMs = lifeMs;
    this.#left = new Promise((resolve) => (this.#leave = () => resolve(undefined)));
  }

  /** Fires when the outcome has landed. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Run the body. `ended` is how it ended; `settled` the same, or nothing where it does not stop when it is told to. Neither throws. */
  begin(): { ended: Promise<Outcome>; settled: Promise<Outcome | undefined> } {
    const limit = this.lease.timeout_ms;
    const timer = limit !== null && limit <= LONGEST_TIMER_MS ? setTimeout(() => this.stop("timeout"), limit) : undefined;
    const ended = this.#run().finally(() => clearTimeout(timer));
    return { ended, settled: Promise.race([ended, this.#left]) };
  }

  /** A call that was sent then has extended the lease. */
  extend(sentAt: number): void {
    clearTimeout(this.#cutOff);
    this.#cutOff = setTimeout(() => this.stop("cut_off"), sentAt + this.#lifeMs - performance.now());
  }

  /** Tell the body to stop. The first reason counts. */
  stop(why: Why): void {
    if (this.why !== undefined) return;
    this.why = why;
    this.#signal.abort(why);
    setTimeout(this.#leave, GRACE_MS);
  }

  /** The outcome has landed: no more heartbeats. */
  close(): void {
    clearTimeout(this.#cutOff);
    this.#over.abort();
  }

  async #run(): Promise<Outcome> {
    let output: Json;
    try {
      output = await this.#body(this.lease.input, { lease: this.lease, signal: this.#signal.signal });
    } catch (error) {
      return thrown(error);
    }
    try {
      JSON.stringify(output);
    } catch (error) {
      return failed("permanent", `the output is no JSON: ${String(error)}`);
    }
    return { call: "complete", message: { output } };
  }
}

/** The outcome of a failure of that class. */
export function failed(class_: string, message: string, more: Partial<Fail> = {}): Failed {
  return { call: "fail", message: { class: class_, message, ...more } };
}

function thrown(error: unknown): Failed {
  if (!(error instanceof Error)) return failed("error", String(error));
  if (!(error instanceof StepFailed)) return failed("error", error.message, { type: error.name });
  return failed(error.class, error.message, error.retryAfterMs === undefined ? {} : { retry_after_ms: error.retryAfterMs });
}
