import { expect, it } from 'vitest';
import { seedOf } from '#test/seed.js';
import { fuzzHttp } from './fuzz/campaign.js';

it("the HTTP parser reads mutated requests equally for every division into chunks, and never differently from Node's parser", () => {
  const { mutants, accepted, failure } = fuzzHttp(seedOf(20_261_122), (done) => done < 5_000);
  expect({ mutants, failure }).toEqual({ mutants: 5_000, failure: null });
  expect(accepted).toBeGreaterThan(500);
});
