import { ESLint, Linter } from 'eslint';
import { describe, expect, it } from 'vitest';

const eslint = new ESLint();

/** Lints the text `code` as the file `file`, only by the rules `no-restricted-*`: other rules need types. */
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

describe('lint rules', () => {
  it.each([
    ['a spread list in Math.max', 'src/cli/output/table.ts', 'Math.max(0, ...list);', 'use `largest`'],
    ['a spread list in Math.min', 'src/node/policy-file.ts', 'Math.min(...list);', 'use `largest` or `smallest`'],
    ['a spread list in push', 'src/dns/thread/dns-thread.ts', 'list.push(...more);', 'use `append`'],
    ['AbortSignal.any in src', 'src/cli/client/client.ts', 'AbortSignal.any([a]);', 'use `withJoinedSignal`'],
    ['AbortSignal.any in a test', 'test/cli/cli-run.ts', 'AbortSignal.any([a]);', 'use `withJoinedSignal`'],
    ['mkdir with recursive', 'src/store/store.ts', 'mkdirSync(a, { recursive: true });', 'use `makeFolders`'],
    ['YAML that is read elsewhere', 'src/cli/client/client.ts', "import { parse } from 'yaml';", 'with `parseYaml`'],
    ['a RegExp in toMatchObject', 'test/x.test.ts', 'expect(a).toMatchObject({ b: [{ c: /x/ }] });', 'stringMatching'],
    ['a RegExp as the value of toEqual', 'test/x.test.ts', 'expect(a).toEqual(/x/);', 'stringMatching'],
    ['numbers of zod that are coerced', 'src/api/traffic/flows.route.ts', 'z.coerce.number();', 'wholeNumber'],
  ])('the lint rules refuse source text with %s', async (_, file, code, advice) => {
    expect(await refusals(file, code)).toEqual([expect.stringContaining(advice)]);
  });

  it('the lint rules accept a RegExp that is an argument of a call', async () => {
    const code = 'expect(a.match(/x/)).toEqual({ b: expect.stringMatching(/x/), c: d.replace(/x/, e) });';
    expect(await refusals('test/x.test.ts', code)).toEqual([]);
  });

  it('the lint rules accept YAML parsing in the module that reads YAML', async () => {
    const code = "import { parseDocument } from 'yaml';";
    expect(await refusals('src/config/yaml-text.ts', code)).toEqual([]);
  });

  it('the lint rules accept calls with a bounded number of arguments', async () => {
    expect(await refusals('src/cli/output/table.ts', 'Math.max(a, b); list.push(a); f(...list);')).toEqual([]);
  });
});
