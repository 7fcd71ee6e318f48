import { expect, test } from 'vitest';
import { rehearse } from '#policy/compile/rehearsal.js';

const context = { fallback: 'deny', dns: false, servicePlane: false, parseCertificate: () => undefined } as const;

test('every round is of a valid policy', () => {
  for (let round = 0; round < 50; round++) expect(() => rehearse(round, context)).not.toThrow();
});
