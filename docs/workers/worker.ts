/** A worker: takes leases, runs their bodies, keeps the leases alive meanwhile, and tells how each ended until the server knows. */

import { Attempt, type Body, type Outcome, failed } from "./attempt.js";
import type { Claim, Claimed, Definition, Json, Lease, Registered, Registration } from "./protocol.js";
import { type Answer, Rejected, Server, backoff, pause, said } from "./server.js";

/** A definition, and the bodies of its `run` steps by name; `on_failure` is one more. */
export interface Workflow {
  definition: Definition;
  bodies: { [step: string]: Body };
}

export interface Options {
  baseUrl: string;
  apiKey: string;
  app: string;
  name: string;
  workflows: Workflow[];
  concurrency?: number;
  graceMs?: number;
  log?: (line: string) => void;
}

const MAX_TASKS = 10;
const MAX_WAIT_MS = 55_000;
const PATIENCE_MS = 10_000;
/** A `Retry-After` is honoured up to this, by calls on which no lease depends. */
const LONGEST_REST_MS = 600_000;
/** What the last outcomes are given to arrive once the grace period is over. */
const SEND_GRACE_MS = 5_000;

export class Worker {
  readonly #options: Required<Options>;
  readonly #server: Server;
  readonly #bodies = new Map<string, Body>();
  readonly #inHand = new Map<string, Promise<void>>();
  readonly #attempts = new Set<Attempt>();
  /** Three moments of the end: no more work is taken; bodies are told to stop; nothing more is sent. */
  readonly #stopping = new AbortController();
  readonly #graceOver = new AbortController();
  readonly #ending = new AbortController();
  #session: Registered | undefined;
  #claims = 0;
  #roomMade = (): void => {};
  #fault: unknown;

  constructor(options: Options) {
    this.#options = { concurrency: 10, graceMs: 30_000, log: console.log, ...options };
    this.#server = new Server(options.baseUrl, options.apiKey, this.#options.log);
    for (const { definition, bodies } of options.workflows)
      for (const [step, body] of Object.entries(bodies)) this.#bodies.set(`${definition.name}/${definition.revision}/${step}`, body);
  }

  /** Work until `stop`, and until what is in hand then is dealt with. Throws what ended the worker otherwise. */
  async run(): Promise<void> {
    await this.#guarded(this.#work());
    await Promise.all(this.#inHand.values());
    this.#ending.abort();
    if (this.#session) await this.#server.once(`workers/${this.#session.worker_id}/leave`, {}, new AbortController().signal, SEND_GRACE_MS);
    if (this.#fault !== undefined) throw this.#fault;
  }

  /** End the poll at once and take no more. Bodies have the grace period; then they are told to stop, then left. */
  stop(): void {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort();
    this.#roomMade();
    void this.#end();
  }

  async #end(): Promise<void> {
    await pause(this.#options.graceMs, this.#ending.signal);
    this.#graceOver.abort();
    for (const attempt of this.#attempts) attempt.stop("shutdown");
    await pause(SEND_GRACE_MS, this.#ending.signal);
    this.#ending.abort();
  }

  /** Whatever goes wrong in the worker itself ends it: it never lives on deaf. */
  async #guarded(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      if (this.#fault === undefined) this.#options.log(`the worker ends: ${String(error)}`);
      this.#fault ??= error;
      this.stop();
    }
  }

  /** One poll at a time, never for more than there is room for. */
  async #work(): Promise<void> {
    let losses = 0;
    while (!this.#stopping.signal.aborted) {
      this.#session ??= await this.#register();
      if (!this.#session) return;
      const room = Math.min(MAX_TASKS, this.#options.concurrency - this.#inHand.size);
      if (room < 1) {
        await new Promise<void>((resolve) => (this.#roomMade = resolve));
        continue;
      }
      const answer = await this.#claim(this.#session, room);
      if (answer.status === 200) {
        losses = 0;
        const { leases, retry_after_ms } = answer.value as Claimed;
        for (const lease of leases) this.#take(this.#session, lease);
        if (retry_after_ms) await pause(retry_after_ms, this.#stopping.signal);
      } else if (answer.code === "unknown_worker" || answer.code === "unknown_definition") {
        this.#session = undefined;
        if (losses++) await pause(backoff(losses), this.#stopping.signal);
      } else if (answer.status !== 0) throw new Rejected(`steps/claim: ${said(answer)}`);
    }
  }

  async #register(): Promise<Registered | undefined> {
    const { app, name, concurrency, workflows } = this.#options;
    const definitions = workflows.map((workflow) => workflow.definition);
    const registration: Registration = { worker: name, app, concurrency, definitions, sdk: "worker.ts" };
    const answer = await this.#server.insist("workers/register", registration, this.#stopping.signal, 3 * PATIENCE_MS, LONGEST_REST_MS);
    if (!answer) return undefined;
    if (answer.status !== 200) throw new Rejected(`workers/register: ${said(answer)}`);
    this.#options.log(`ready: ${definitions.map((definition) => definition.name).join(", ")}`);
    return answer.value as Registered;
  }

  /**
   * A claim, held by the server while there is nothing. `stop` hangs up; what the claim had been given by then comes back under the same id, which
   * serves nothing new, and goes back.
   */
  async #claim(session: Registered, room: number): Promise<Answer> {
    const serves = this.#options.workflows.map(({ definition: { name, revision } }) => ({ name, revision }));
    const wait_ms = Math.min(MAX_WAIT_MS, session.max_wait_ms);
    const claim: Claim = { worker_id: session.worker_id, claim_id: String(++this.#claims), max: Math.min(room, session.max_claim), wait_ms, serves };
    const answer = await this.#server.insist("steps/claim", claim, this.#stopping.signal, wait_ms + PATIENCE_MS, LONGEST_REST_MS);
    return answer ?? this.#server.once("steps/claim", { ...claim, wait_ms: 0, serves: [] }, this.#ending.signal, SEND_GRACE_MS);
  }

  #take(session: Registered, lease: Lease): void {
    const carried = this.#guarded(this.#carry(session, lease)).then(() => {
      this.#inHand.delete(lease.id);
      this.#roomMade();
    });
    this.#inHand.set(lease.id, carried);
  }

  /** One lease from here to its end. Its body runs only after the server has said yes to `started`. */
  async #carry(session: Registered, lease: Lease): Promise<void> {
    const body = this.#bodies.get(`${lease.workflow}/${lease.revision}/${lease.step}`);
    if (!body) return this.#report(lease, failed("unservable", `this worker has no body for step ${lease.step} of ${lease.workflow}`));
    if (this.#stopping.signal.aborted || !(await this.#fetchParts(lease))) return this.#report(lease, failed("returned", "the body did not run"));
    const answer = await this.#server.insist(`steps/${lease.id}/started`, {}, this.#graceOver.signal);
    if (!answer) return this.#report(lease, failed("returned", "the body did not run"));
    if (answer.status !== 200) return this.#options.log(`${named(lease)}: not started: ${said(answer)}`);
    const attempt = new Attempt(lease, body, session.lease_ttl_ms + session.recovery_ms);
    attempt.extend(answer.sentAt);
    this.#attempts.add(attempt);
    const beats = this.#guarded(this.#beat(attempt, session.heartbeat_ms));
    try {
      await this.#settle(attempt);
    } finally {
      this.#attempts.delete(attempt);
      attempt.close();
      await beats;
    }
  }

  /** Heartbeats until the outcome has landed, so that the lease lives while that is repeated. */
  async #beat(attempt: Attempt, everyMs: number): Promise<void> {
    for (;;) {
      await pause(everyMs, attempt.over);
      const answer = await this.#server.insist(`steps/${attempt.lease.id}/heartbeat`, {}, attempt.over);
      if (!answer || answer.code === "already_applied") return;
      if (answer.status === 200) attempt.extend(answer.sentAt);
      else if (answer.code === "run_terminal") return attempt.stop("run_terminal");
      else if (answer.code === "fenced" || answer.status === 404) return attempt.stop("fenced");
      else throw new Rejected(`${named(attempt.lease)}: heartbeat: ${said(answer)}`);
    }
  }

  /**
   * Run the body, say how it ended. A lost lease is acknowledged when its body has really ended, and not before: compensation waits for that. Of one
   * that was left for another reason it is said at once that it may still be at work.
   */
  async #settle(attempt: Attempt): Promise<void> {
    const { lease } = attempt;
    const { ended, settled } = attempt.begin();
    const outcome = await settled;
    const why = attempt.why;
    if (outcome && !why) return this.#report(lease, outcome);
    if (!outcome) void this.#guarded(ended.then(() => this.#report(lease, failed("returned", "the body that was left has ended"))));
    if (!outcome && why !== "timeout" && why !== "shutdown") return undefined;
    const message = why === "timeout" ? `attempt ${lease.attempt} timed out after ${lease.timeout_ms} ms` : `the body was told to stop: ${why}`;
    return this.#report(lease, failed(why === "timeout" ? "timeout" : "returned", message, { body_ended: outcome !== undefined }));
  }

  /** Repeated until it has landed or is refused: a finished body is never run again because of a lost reply. */
  async #report(lease: Lease, { call, message }: Outcome, isCorrected = false): Promise<void> {
    const how = call === "fail" ? `${message.class}: ${message.message}` : "completed";
    const log = (line: string): void => this.#options.log(`${named(lease)}: ${how}${line}`);
    const answer = await this.#server.insist(`steps/${lease.id}/${call}`, message, this.#ending.signal);
    if (!answer) log("; the worker ended before it could say so");
    else if (answer.status === 200) log("");
    else if (answer.code === "already_applied") log((answer.outcome === "completed") === (call === "complete") ? "" : `; but ${answer.outcome} counts`);
    else if (answer.code === "fenced" || answer.code === "run_terminal" || answer.status === 404) log(`; refused: ${said(answer)}`);
    else if (answer.code === "not_started") log(`; A BUG IN THIS WORKER: ${said(answer)}`);
    else if ((answer.status === 400 || answer.status === 413) && !isCorrected) await this.#report(lease, failed("permanent", answer.message), true);
    else throw new Rejected(`${named(lease)}: ${how}; ${said(answer)}`);
  }

  /** Put the values that were too large to travel with the lease where they belong. Says whether it is whole. */
  async #fetchParts(lease: Lease): Promise<boolean> {
    for (const [place, reference] of Object.entries(lease.parts ?? {})) {
      const answer = await this.#server.insist(`steps/${lease.id}/parts/${encodeURIComponent(reference)}`, undefined, this.#graceOver.signal);
      if (answer?.status !== 200) return false;
      if (place === "input") lease.input = answer.value as Json;
      else if (place === "state") lease.state = answer.value as Lease["state"];
      else if (place.startsWith("steps/")) lease.steps[place.slice("steps/".length)] = answer.value as Json;
    }
    return true;
  }
}

function named(lease: Lease): string {
  return `${lease.workflow}/${lease.step} attempt ${lease.attempt} of run ${lease.run_id}`;
}
