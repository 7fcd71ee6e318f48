import { afterAll, beforeEach } from 'vitest';
import type { Family } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { type Loaded, loadForTest } from './loaded.js';

/**
 * Loads the datapath for the tests of the file, or of the `describe` block, that calls this function. Before
 * each test, the datapath forgets its flows and counts, and `program` comes into force, if one is given.
 * After the last test, the datapath is closed.
 */
export function kernelOfFile<F extends Family = 'ipv4'>(
  program?: Program,
  ...options: Parameters<typeof loadForTest<F>>
): Loaded<F> {
  const kernel = loadForTest(...options);
  afterAll(() => kernel.close());
  beforeEach(() => {
    kernel.forget();
    if (program !== undefined) kernel.activate(program);
  });
  return kernel;
}
