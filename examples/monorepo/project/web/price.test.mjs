import test from "node:test";
import assert from "node:assert";
import { shown } from "./price.mjs";

test("a price has two decimals", () => {
  assert.equal(shown({ cents: 250 }), "2.50");
});
