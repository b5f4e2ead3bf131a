import test from "node:test";
import assert from "node:assert";
import { slug } from "./slug.js";

test("a slug has no spaces", () => {
  assert.equal(slug(" Hello big World "), "hello-big-world");
});
