import { describe, expect, it } from 'vitest';
import { TOKENS } from '#test/api/fake-management.js';
import { listening, rig } from '#test/api/rig.js';
import { run, serverThatAnswers } from './cli-run.js';

describe('weir console', () => {
  it('`weir console` prints a link at the address of the node, whose code signs in once', async () => {
    const { api } = await rig();
    const server = `http://127.0.0.1:${await listening(api)}`;
    const { code, out, err } = await run(['console', '--server', server], { WEIR_TOKEN: TOKENS.readonly });
    expect([code, err]).toEqual([0, 'open this link within 60 s; it signs in one browser, once\n']);
    const [, origin, signIn] = /^(.*)\/console\/#code=([\w-]{43})\n$/.exec(out) ?? [];
    expect(origin).toBe(server);
    const use = async () => {
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify({ code: signIn });
      return (await fetch(`${server}/api/v1/session`, { method: 'POST', headers, body })).status;
    };
    expect([await use(), await use()]).toEqual([201, 401]);
  });

  it('`weir console -o json` prints the link and its expiry', async () => {
    const expires = '2026-02-01T00:01:00.000Z';
    const { url, asked } = await serverThatAnswers({ status: 201, body: { code: 'abc', expires_at: expires } });
    const { out, err } = await run(['console', '-o', 'json', '--server', url], { WEIR_TOKEN: 't' });
    expect([JSON.parse(out), err]).toEqual([{ url: `${url}/console/#code=abc`, expires_at: expires }, '']);
    expect(asked.map(({ method, path, authorization }) => [method, path, authorization])).toEqual([
      ['POST', '/api/v1/session/link', 'Bearer t'],
    ]);
  });

  it('`weir console` prints an error if the node refuses the request, or if the response contains no link', async () => {
    const { api } = await rig();
    const server = `http://127.0.0.1:${await listening(api)}`;
    const refused = await run(['console', '--server', server], { WEIR_TOKEN: TOKENS.expired });
    expect([refused.code, refused.out, refused.err]).toEqual([
      1,
      '',
      'weir: the token has expired.\n  → give another token with --token-file or WEIR_TOKEN; `weir token create` makes one\n',
    ]);
    const { url } = await serverThatAnswers({ status: 201, body: { code: 'a\nb', expires_at: '' } });
    const { code, out } = await run(['console', '--server', url], { WEIR_TOKEN: 't' });
    expect([code, out]).toEqual([1, '']);
  });
});
