import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { eventsOf } from '#observe/wiretap/event-stream.js';
import { FLOW_MESSAGE as flow, LOOKUP_FIELDS } from '#test/observe/flow-message.js';
import { run, TOKEN } from './cli-run.js';
import { wiretapThatSends } from './event-server.js';

/** Collects garbage all the time, so that an object without a reference is freed at once. */
const COLLECTING = ['--expose-gc', '--import', 'data:text/javascript,setInterval(gc, 10).unref()'];
const MANY_LINES = 30;
const ended = {
  ...flow,
  type: 'flow_end',
  opened: '2026-01-31T11:59:00.000Z',
  packets: { forward: 3, reply: 2 },
  bytes: { forward: 180, reply: 120 },
};
const denied = {
  ...flow,
  type: 'verdict',
  dst_names: [],
  proto: 1,
  src_port: null,
  dst_port: null,
  verdict: 'deny',
  effective_action: 'deny',
  source_group: null,
  rule: null,
  decided_by: 'policy_default',
  source_groups: ['lan'],
  drop_reason: 'policy_deny',
  icmp_type: 8,
  icmp_code: 0,
  tcp_flags: null,
  length: 60,
  packets: 1,
  outgoing: false,
};
const lookup = {
  ...LOOKUP_FIELDS,
  time: '2026-01-31T12:00:01.000Z',
  hostname: 'api.example.com',
  policy_id: 'p-1',
  count: 1,
  addresses: ['192.0.2.1'],
};
const inspected = {
  ...flow,
  type: 'tls',
  verdict: 'deny',
  effective_action: 'deny',
  interface: null,
  reason: 'upstream_untrusted:expired',
  sni: 'api.example.com',
};
const request = {
  ...inspected,
  type: 'http',
  verdict: 'audit',
  effective_action: 'allow',
  reason: null,
  http: { method: 'GET', host: 'api.example.com', path: '/v1/things' },
};
const lost = { type: 'lost', count: 12, where: 'reader' };
const LINES = [
  '12:00:00.123  flow          allow     tcp   10.0.0.7:40000 → api.example.com (192.0.2.1:443)  lan/web',
  '12:00:00.123  flow_end      allow     tcp   10.0.0.7:40000 → api.example.com (192.0.2.1:443)  lan/web  3/2 packets, 180/120 bytes',
  '12:00:00.123  verdict       deny      icmp  10.0.0.7 → 192.0.2.1  (policy_default, in lan)  type 8 code 0, policy_deny',
  '12:00:01.000  dns           allow     dns   10.0.0.7 → A api.example.com = 192.0.2.1  lan/web',
  '12:00:00.123  tls           deny      tcp   10.0.0.7:40000 → api.example.com (192.0.2.1:443)  lan/web  api.example.com, upstream_untrusted:expired',
  '12:00:00.123  http          audit     tcp   10.0.0.7:40000 → api.example.com (192.0.2.1:443)  lan/web  GET api.example.com/v1/things',
  '12 messages lost (reader)',
];

/** Runs `weir` until the command has printed `lines` lines of text, then interrupts the command. */
async function until(lines: number, words: readonly string[], surroundings: { colours?: boolean } = {}) {
  const interruption = new AbortController();
  return run(words, TOKEN, { ...surroundings, interruption: interruption.signal }, (all) => {
    if (all.split('\n').length > lines) interruption.abort();
  });
}

describe('weir wiretap', () => {
  it('`weir wiretap` prints one line of text per message, with host names next to addresses, and exits with 0 when interrupted', async () => {
    const { url, asked } = await wiretapThatSends({
      frames: [flow, [ended, denied], lookup, inspected, request, lost],
      after: 'stay',
    });
    const filters = ['--src', '10.0.0.0/8', '192.0.2.7', '--verdict', 'deny', '--replay', '10s'];
    expect(await until(7, ['wiretap', ...filters, '--server', url])).toEqual({
      code: 0,
      out: LINES.map((line) => `${line}\n`).join(''),
      err: '',
    });
    expect(asked.map(decodeURIComponent)).toEqual([
      'text/event-stream /api/v1/wiretap/stream?src=10.0.0.0/8&src=192.0.2.7&verdict=deny&replay=10s',
    ]);
  });

  it('`weir wiretap` prints the pods that own the addresses', async () => {
    const owner = (name: string) => ({ integration: 'prod', kind: 'pod', namespace: 'shop', name });
    const { url } = await wiretapThatSends({
      frames: [
        { ...flow, src_owner: owner('web'), dst_owner: owner('api') },
        { ...lookup, src_owner: owner('web') },
      ],
      after: 'stay',
    });
    const { out } = await until(2, ['wiretap', '--server', url]);
    expect(out).toContain('shop/web (10.0.0.7:40000) → api.example.com (shop/api (192.0.2.1:443))');
    expect(out).toContain('shop/web (10.0.0.7) → ');
  });

  it('`weir wiretap` prints one line of JSON, or one YAML document, for each message', async () => {
    const { url } = await wiretapThatSends({ frames: [[flow, lost]], after: 'stay' });
    const { out: json } = await until(2, ['wiretap', '--output', 'json', '--server', url]);
    expect(json).toBe(`${JSON.stringify(flow)}\n${JSON.stringify(lost)}\n`);
    const { out: yaml } = await until(2, ['wiretap', '--output', 'yaml', '--server', url]);
    expect(parseAllDocuments(yaml).map((document) => document.toJS() as unknown)).toEqual([flow, lost]);
  });

  it('`weir wiretap` prints the destination before DNAT after the rule', async () => {
    const translated = { ...flow, translation: { dst: '198.51.100.1', dst_port: 80 } };
    const { url } = await wiretapThatSends({ frames: [translated], after: 'stay' });
    const { out } = await until(1, ['wiretap', '--server', url]);
    expect(out).toBe(`${LINES[0]}  sent to 198.51.100.1:80\n`);
  });

  it('`weir wiretap` writes IPv6 addresses with ports in brackets, and ICMPv6 by its name', async () => {
    const six = { src: '2001:db8::7', dst: '2001:db8:f::1' };
    const translated = { ...flow, ...six, dst_names: [], translation: { dst: '2001:db8:f::9', dst_port: 80 } };
    const { url } = await wiretapThatSends({ frames: [[translated, { ...denied, ...six, proto: 58 }]], after: 'stay' });
    const { out } = await until(2, ['wiretap', '--server', url]);
    expect(out.split('\n').map((line) => line.replace(/^\S+ +/, ''))).toEqual([
      'flow          allow     tcp   [2001:db8::7]:40000 → [2001:db8:f::1]:443  lan/web  sent to [2001:db8:f::9]:80',
      'verdict       deny      icmpv6  2001:db8::7 → 2001:db8:f::1  (policy_default, in lan)  type 8 code 0, policy_deny',
      '',
    ]);
  });

  it('`weir wiretap --fold` requests that the node combines equal messages into one, and prints how many messages each one represents', async () => {
    const folded = { ...flow, count: 12, first_seen: '2026-01-31T11:59:59.750Z' };
    const { url, asked } = await wiretapThatSends({ frames: [[folded, { ...folded, count: 1 }]], after: 'stay' });
    const { out } = await until(2, ['wiretap', '--fold', '1s', '--server', url]);
    expect(asked).toEqual(['text/event-stream /api/v1/wiretap/stream?fold=1s']);
    const [many, one] = out.split('\n');
    expect([many?.endsWith('  ×12'), one]).toEqual([true, LINES[0]]);
  });

  it('`weir wiretap` prints verdicts and the number of lost messages in colours on a terminal', async () => {
    const { url } = await wiretapThatSends({ frames: [[denied, lost]], after: 'stay' });
    const { out } = await until(2, ['wiretap', '--server', url], { colours: true });
    expect(out).toContain('\u001b[31mdeny    \u001b[39m');
    expect(out).toContain('\u001b[35m12 messages lost (reader)\u001b[39m\n');
  });

  it('`weir wiretap` reconnects after the stream ended or was cut, or the node restarted, and prints no message twice', async () => {
    const { url, asked } = await wiretapThatSends(
      { frames: [flow], after: 'end' },
      { status: 503, body: { type: 'urn:weir:error:draining', error: 'The node is shutting down.' } },
      { frames: [lookup], after: 'cut' },
      { frames: [ended], after: 'stay' },
    );
    const { code, out, err } = await until(3, ['wiretap', '--replay', '10s', '--server', url]);
    expect([code, out]).toEqual([0, `${LINES[0]}\n${LINES[3]}\n${LINES[1]}\n`]);
    expect(err.split('\n').filter((line) => line.startsWith('the stream continues'))).toHaveLength(2);
    expect(asked.map((path) => path.includes('replay'))).toEqual([true, false, false, false]);
  });

  it('`weir wiretap` exits with 1 and prints a remedy if the node refuses the stream', async () => {
    const body = { type: 'urn:weir:error:performance_mode_disabled', error: 'Performance mode is disabled.' };
    const { url, asked } = await wiretapThatSends({ status: 503, body });
    expect(await run(['wiretap', '--server', url], TOKEN)).toEqual({
      code: 1,
      out: '',
      err: 'weir: Performance mode is disabled.\n  → run `weir performance-mode on` first\n',
    });
    expect(asked).toHaveLength(1);
  });

  it('`weir wiretap` exits with 1 if the stream contains an invalid message', async () => {
    const { url } = await wiretapThatSends({ frames: [{ hello: 1 }], after: 'stay' });
    const { code, err } = await run(['wiretap', '--server', url], TOKEN);
    expect([code, err]).toEqual([1, 'weir: the server sent an unexpected response; is it a Weir node?\n']);
  });

  describe('`weir wiretap` in a separate process', () => {
    const program = fileURLToPath(new URL('../../bin/weir.js', import.meta.url));
    const started = (words: readonly string[], url: string) => {
      const child = spawn(process.execPath, [...COLLECTING, program, ...words, '--server', url], {
        env: { ...process.env, ...TOKEN },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      onTestFinished(() => void child.kill('SIGKILL'));
      let err = '';
      child.stderr.on('data', (chunk) => {
        err += String(chunk);
      });
      const ending = once(child, 'exit').then(([code, signal]) => ({ code, signal, err }));
      return { child, ending };
    };

    it.each(['SIGINT', 'SIGTERM'] as const)(
      '`weir wiretap` exits with 0 on the signal %s after messages and garbage collections',
      async (signal) => {
        const { url, reading, send } = await wiretapThatSends({ frames: [flow], after: 'stay' });
        const { child, ending } = started(['wiretap'], url);
        const sending = setInterval(() => send(flow), 20);
        onTestFinished(() => clearInterval(sending));
        for (let bytes = 0; bytes < MANY_LINES * (LINES[0]?.length ?? 0); )
          bytes += ((await once(child.stdout, 'data')) as [Buffer])[0].length;
        child.kill(signal);
        expect(await ending).toEqual({ code: 0, signal: null, err: '' });
        await expect.poll(reading).toBe(0);
      },
    );

    it('`weir findings --follow` ends on SIGTERM while the node does not answer', async () => {
      const server = createServer(() => child.kill('SIGTERM'));
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      onTestFinished(() => {
        server.closeAllConnections();
        server.close();
      });
      const { port } = server.address() as AddressInfo;
      const { child, ending } = started(['findings', '--follow'], `http://127.0.0.1:${port}`);
      expect(await ending).toEqual({ code: 0, signal: null, err: '' });
    });

    it('`weir wiretap` exits with 0 and prints no error if the reader closes the output pipe', async () => {
      const { url, send } = await wiretapThatSends({ frames: [flow], after: 'stay' });
      const { child, ending } = started(['wiretap'], url);
      await once(child.stdout, 'data');
      child.stdout.destroy();
      const writing = setInterval(() => send(flow), 20);
      onTestFinished(() => clearInterval(writing));
      expect(await ending).toEqual({ code: 0, signal: null, err: '' });
    });
  });
});

describe('Server-Sent Events parser', () => {
  const events = async (...chunks: string[]) => {
    const bytes = chunks.map((chunk) => new TextEncoder().encode(chunk));
    const found: string[] = [];
    for await (const event of eventsOf(
      (async function* () {
        yield* bytes;
      })(),
    ))
      found.push(event);
    return found;
  };

  it('the parser of Server-Sent Events finds all events for any chunk boundary and any line ending', async () => {
    expect(await events('da', 'ta: a\n', '\nda', 'ta:b\r', '\n\r\ndata: c\r\rdata: d\n\n')).toEqual([
      'a',
      'b',
      'c',
      'd',
    ]);
  });

  it('the parser of Server-Sent Events joins the data lines of one event, and ignores comments, other fields and an unfinished event', async () => {
    expect(await events(': hello\n\nevent: x\ndata: a\ndata: b\nid: 7\n\ndata: cut')).toEqual(['a\nb']);
  });

  it('the parser of Server-Sent Events decodes characters whose UTF-8 bytes are split between two chunks', async () => {
    const bytes = new TextEncoder().encode('data: ü→\n\n');
    const found: string[] = [];
    const cut = (async function* () {
      for (const byte of bytes) yield Uint8Array.of(byte);
    })();
    for await (const event of eventsOf(cut)) found.push(event);
    expect(found).toEqual(['ü→']);
  });
});
