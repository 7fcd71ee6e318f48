import { expect, it } from 'vitest';
import { seedOf } from '#test/seed.js';
import { fuzzHttp } from './fuzz/campaign.js';

it("the HTTP parser reads each of 5,000 mutated messages equally in one chunk and in random chunks, and accepts no request that Node's parser reads differently", () => {
  const { mutants, accepted, failure } = fuzzHttp(seedOf(20_261_122), (done) => done < 5_000);
  expect({ mutants, failure }).toEqual({ mutants: 5_000, failure: null });
  expect(accepted).toBeGreaterThan(500);
});
