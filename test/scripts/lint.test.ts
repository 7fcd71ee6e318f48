import { ESLint, Linter } from 'eslint';
import { describe, expect, it } from 'vitest';

const eslint = new ESLint();

/** Returns the messages of the rules `no-restricted-*` for a code in a file. The other rules need types. */
async function refusals(file: string, code: string): Promise<string[]> {
  const { rules, languageOptions } = (await eslint.calculateConfigForFile(file)) as Linter.Config;
  const restricted = Object.entries(rules ?? {}).filter(([name]) => name.startsWith('no-restricted-'));
  const { parser } = languageOptions ?? {};
  const config = {
    languageOptions: { ...(parser === undefined ? {} : { parser }) },
    rules: Object.fromEntries(restricted),
  };
  return new Linter().verify(code, [config], 'code.js').map(({ message }) => message);
}

describe('the lint rules refuse', () => {
  it.each([
    ['a spread list in Math.max', 'src/cli/table.ts', 'Math.max(0, ...list);', 'use `largest`'],
    ['a spread list in Math.min', 'src/node-policy-file.ts', 'Math.min(...list);', 'use `largest` or `smallest`'],
    ['a spread list in push', 'src/dns/dns-thread.ts', 'list.push(...more);', 'use `append`'],
    ['AbortSignal.any in src', 'src/cli/client.ts', 'AbortSignal.any([a]);', 'use `withJoinedSignal`'],
    ['AbortSignal.any in a test', 'test/cli/cli-run.ts', 'AbortSignal.any([a]);', 'use `withJoinedSignal`'],
    ['numbers of zod that are coerced', 'src/api/flows.route.ts', 'z.coerce.number();', 'wholeNumber'],
  ])('%s', async (_, file, code, advice) => {
    expect(await refusals(file, code)).toEqual([expect.stringContaining(advice)]);
  });

  it('nothing in a bounded call', async () => {
    expect(await refusals('src/cli/table.ts', 'Math.max(a, b); list.push(a); f(...list);')).toEqual([]);
  });
});
