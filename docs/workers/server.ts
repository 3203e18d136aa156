/** One server over HTTP: sends JSON with the key, repeats what may be repeated. The key is in the headers, and in nothing that is ever printed. */

import type { Refusal } from "./protocol.js";

/** An answer; status 0 where none came. `code`, `message` and `outcome` are of a refusal; `sentAt` is by `performance.now()`. */
export interface Answer {
  status: number;
  value: unknown;
  code: string;
  message: string;
  outcome?: string | undefined;
  retryAfterMs: number;
  sentAt: number;
}

/** The server will not have this worker: its key, its permissions or what it asks for. */
export class Rejected extends Error {
  override name = "Rejected";
}

const PATIENCE_MS = 10_000;
const LONGEST_BACKOFF_MS = 30_000;
/** A lease depends on its calls: none waits longer than this before it is made again. */
const LONGEST_WAIT_MS = 5_000;

export class Server {
  readonly #root: URL;
  readonly #headers: { [name: string]: string };
  readonly #log: (line: string) => void;

  /** `baseUrl` is where the project includes `ezgh_workflows_django.urls`. */
  constructor(baseUrl: string, apiKey: string, log: (line: string) => void) {
    if (!/^[!-~]+$/.test(apiKey)) throw new Error("apiKey: has to be a key as `manage.py workflows_key create` prints it");
    this.#root = new URL("v1/api/", baseUrl.endsWith("/") ? baseUrl : `${baseUrl}/`);
    this.#headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" };
    this.#log = log;
  }

  /**
   * The same call again until it is answered: after 429, 5xx or no answer at all, after any `Retry-After` and a growing wait, at most `longestMs` in all.
   * Nothing once `signal` says that nobody waits any more. Throws `Rejected` after 401 and 403.
   */
  async insist(
    path: string,
    body: object | undefined,
    signal: AbortSignal,
    patienceMs = PATIENCE_MS,
    longestMs = LONGEST_WAIT_MS,
  ): Promise<Answer | undefined> {
    for (let failures = 0; !signal.aborted; failures++) {
      const answer = await this.once(path, body, signal, patienceMs);
      if (answer.status === 401 || answer.status === 403) throw new Rejected(`${path}: ${said(answer)}`);
      if (answer.status !== 0 && answer.status !== 429 && answer.status < 500) return answer;
      if (signal.aborted) break;
      const wait = Math.min(answer.retryAfterMs + backoff(failures), longestMs);
      this.#log(`${path}: ${said(answer)}; again in ${Math.round(wait)} ms`);
      await pause(wait, signal);
    }
    return undefined;
  }

  /** One call, which waits so long for its answer, or until `signal`. A GET where there is no body. */
  async once(path: string, body: object | undefined, signal: AbortSignal, patienceMs = PATIENCE_MS): Promise<Answer> {
    const sent = body === undefined ? { method: "GET" } : { method: "POST", body: JSON.stringify(body) };
    const sentAt = performance.now();
    const hangUp = new AbortController();
    const end = (): void => hangUp.abort();
    const timer = setTimeout(end, patienceMs);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
    try {
      const response = await fetch(new URL(path, this.#root), { ...sent, headers: this.#headers, redirect: "manual", signal: hangUp.signal });
      return read(response, await response.text(), sentAt);
    } catch (error) {
      const cause = error instanceof Error ? (error.cause ?? error) : error;
      return { status: 0, value: undefined, code: "", message: `no answer (${String(cause)})`, retryAfterMs: 0, sentAt };
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
    }
  }
}

/** A refusal in words. */
export function said(answer: Answer): string {
  return answer.status === 0 ? answer.message : `${answer.status} ${answer.code} ${answer.message}`;
}

/** Milliseconds to wait after so many failures; up to half of them at random, so that a fleet does not return in step. */
export function backoff(failures: number): number {
  return Math.min(LONGEST_BACKOFF_MS, 250 * 2 ** failures) * (0.5 + Math.random() / 2);
}

/** Wait so long, or until `signal`. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
  });
}

function read(response: Response, text: string, sentAt: number): Answer {
  const value = parsed(text);
  const refusal = response.ok ? undefined : (value as Partial<Refusal> | null | undefined)?.error;
  return {
    status: response.ok && value === undefined ? 0 : response.status, // a 200 of something in between is no answer of this server
    value,
    code: refusal?.code ?? "",
    message: refusal?.message ?? "not an answer of this protocol",
    outcome: refusal?.outcome?.status,
    retryAfterMs: 1000 * (Number(response.headers.get("Retry-After")) || 0),
    sentAt,
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
