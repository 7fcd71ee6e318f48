import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import { visible, visibleIn, visibleLines } from '#cli/output/visible.js';
import { run, serverThatAnswers, TOKEN } from './cli-run.js';
import { wiretapThatSends } from './event-server.js';

const HOSTILE = 'a\u001b[2J\u009b31m\u001b[32m\r\n\t\u007f\u202e\u2028b';
const SHOWN = 'a\\u001b[2J\\u009b31m\\u001b[32m\\r\\n\\t\\u007f\\u202e\\u2028b';
/** Matches control characters except the line feed, a line separator, and a mark that reverses the text. */
const ACTING = /[^\P{Cc}\n]|[\u2028\u202e]/u;

const record = {
  id: HOSTILE,
  name: HOSTILE,
  mode: 'enforce',
  form: 'envelope',
  revision: 1,
  active: true,
  created_at: '2026-01-31T12:00:00.000Z',
  updated_at: '2026-01-31T12:00:00.000Z',
  updated_by: HOSTILE,
};
const finding = {
  finding_type: 'dns_deny',
  source_group: HOSTILE,
  rule: HOSTILE,
  src_ip: '10.0.0.7',
  dst_ip: null,
  dst_port: null,
  proto: 17,
  hostname: HOSTILE,
  sni: null,
  http: null,
  icmp_type: null,
  icmp_code: null,
  drop_reason: null,
  reason: HOSTILE,
  effective_action: 'deny',
  first_seen: '2026-01-31T12:00:00.000Z',
  last_seen: '2026-01-31T12:00:00.000Z',
  count: 1,
};
const ANSWERS: readonly (readonly [string, object])[] = [
  ['policy list', { items: [record], next_cursor: null }],
  ['findings', { items: [finding], next_cursor: null, node_errors: [{ node_id: HOSTILE, error: HOSTILE }] }],
  [
    'token list',
    { items: [{ id: '1', subject: HOSTILE, role: 'admin', created_at: '', expires_at: null, revoked_at: null }] },
  ],
  ['dns-cache', { items: [{ hostname: HOSTILE, ips: [HOSTILE], patterns: [HOSTILE], expires_at: '', last_seen: '' }] }],
];

describe('texts of operators and of the network', () => {
  it.each(ANSWERS)(
    '`weir %s` prints no control characters in a table, and prints exact values in JSON and YAML',
    async (words, body) => {
      const { url } = await serverThatAnswers({ status: 200, body });
      const command = [...words.split(' '), '--server', url];
      const { code, out, err } = await run(command, TOKEN);
      expect([code, ACTING.test(out + err)]).toEqual([0, false]);
      expect(out).toContain(SHOWN);
      const values = [
        JSON.parse((await run([...command, '--output', 'json'], TOKEN)).out),
        parse((await run([...command, '--output', 'yaml'], TOKEN)).out),
      ];
      for (const { items } of values) expect(items).toEqual((body as { items: unknown }).items);
    },
  );

  it('`weir wiretap` prints no control characters of a message in a line', async () => {
    const interruption = new AbortController();
    const frame = { type: 'dns', src: '10.0.0.7', hostname: HOSTILE, source_group: HOSTILE, rule: 'r' };
    const { url } = await wiretapThatSends({ frames: [frame], after: 'stay' });
    const { out } = await run(['wiretap', '--server', url], TOKEN, { interruption: interruption.signal }, () =>
      interruption.abort(),
    );
    expect([out.split('\n').length, ACTING.test(out), out.includes(SHOWN)]).toEqual([2, false, true]);
  });

  it('an error text with control characters is printed with these characters escaped', async () => {
    const { url } = await serverThatAnswers({
      status: 404,
      body: { type: 'urn:weir:error:not_found', error: HOSTILE },
    });
    const { err } = await run(['policy', 'list', '--server', url], TOKEN);
    expect([ACTING.test(err), err.includes('a\\u001b[2J')]).toEqual([false, true]);
  });

  it('`visibleIn` escapes control characters in keys and values of any depth, and changes no other values', () => {
    const map = new Map([['a', '\n']]);
    expect(visibleIn({ '\n': [{ a: '\u0007' }, 1, null, map] })).toEqual({ '\\n': [{ a: '\\u0007' }, 1, null, map] });
    expect(visible('grün → ok')).toBe('grün → ok');
  });
});

describe('lines of a command', () => {
  it('`visibleLines` keeps line feeds and the colours that commands use, and escapes other control characters', () => {
    const { good, bad, warn, lost, dim, bold } = styleOf({ colours: true });
    const coloured = [good, bad, warn, lost, dim, bold].map((style) => style('x')).join('\n');
    expect(visibleLines(coloured)).toBe(coloured);
    expect(visibleLines('\u001b[8mhidden\u001b]0;title\u0007')).toBe('\\u001b[8mhidden\\u001b]0;title\\u0007');
  });

  it('a cell of a printed table contains no line feed', () => {
    expect(table(['A'], [['x\ny']])).toBe('A\nx\\ny\n');
  });
});
