import type { AssertionResult } from '#contracts/analysis/assertion.js';

/** Returns the result of an assertion for which no contradicting flows are listed. */
export function unregioned(id: string, result: AssertionResult['result'], message: string): AssertionResult {
  return { id, result, message, regions: [], regions_omitted: 0 };
}
