/** The workflow `quote`: two steps that start with the run, and one that joins them. */

import { main } from "./main.js";
import type { Workflow } from "./worker.js";

const quote: Workflow = {
  definition: {
    name: "quote",
    revision: "1",
    steps: [
      { name: "price", kind: "run" },
      { name: "stock", kind: "run" },
      { name: "quote", kind: "run", after: ["price", "stock"] },
    ],
  },
  bodies: {
    price: () => 120,
    stock: () => 7,
    quote: (input, { lease }) => {
      const { price, stock } = input as { price: number; stock: number };
      console.log(`${lease.workflow}/${lease.step} attempt ${lease.attempt}: price ${price}, stock ${stock}`);
      return "ok";
    },
  },
};

await main("quote", [quote]);
