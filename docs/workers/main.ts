/** A worker as a program: arguments, the key from the environment, signals, an exit code. */

import { Worker, type Workflow } from "./worker.js";

/** Of Node's own types all that is needed here; a project with `@types/node` leaves this out. */
declare const process: {
  argv: string[];
  env: { [name: string]: string | undefined };
  pid: number;
  on(name: string, heard: () => void): void;
  exit(code: number): never;
};

/** Work for the server and the app of the command line, until SIGTERM or SIGINT; a second one exits now. Code 0 after a clean stop, else 1. */
export async function main(name: string, workflows: Workflow[]): Promise<never> {
  const [, program, baseUrl, app = "default", graceMs = "30000"] = process.argv;
  const apiKey = process.env["WORKFLOWS_API_KEY"];
  try {
    if (!baseUrl || !apiKey) throw new Error(`WORKFLOWS_API_KEY=ezw_… node ${program} https://example.com/workflows [app [grace in ms]]`);
    const worker = new Worker({ baseUrl, apiKey, app, name: `${name}-${process.pid}`, workflows, graceMs: Number(graceMs) });
    let signals = 0;
    for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => (signals++ ? process.exit(130) : worker.stop()));
    await worker.run();
  } catch (error) {
    console.error(String(error));
    process.exit(1);
  }
  process.exit(0); // whatever a body left behind still does
}
