import { decode } from 'dns-packet';
import { describe, expect, test } from 'vitest';
import { framed } from '#dns/wire/message/framing.js';
import { query, responseText, TcpClient, UdpClient } from './client.js';
import { alwaysAt, FakeUpstream, type ReceivedQuery } from './fake-upstream.js';
import { startProxy } from './proxy.js';
import { settled } from './settled.js';

const NAME = 'www.example.com';
const ADDRESS = '203.0.113.1';
const GOOD = ['NOERROR', `${NAME} A ${ADDRESS}`];
const named = (number: number): string => `n${number}.example.com`;
const at = (name: string): string[] => ['NOERROR', `${name} A ${ADDRESS}`];

describe('TCP connection of a DNS client', () => {
  test('a TCP client gets answers in the order in which the resolver answers, which may differ from the order of the queries', async () => {
    const received: ReceivedQuery[] = [];
    const upstream = await FakeUpstream.start((given) => received.push(given));
    const rig = await startProxy([upstream]);
    const client = await TcpClient.to(rig.at);
    client.send(...[0, 1, 2].map((number) => query(named(number))));
    await settled(() => received.length, 3);
    const order = [2, 0, 1];
    for (const [done, number] of order.entries()) {
      const asked = received.find(({ question }) => question.name === named(number));
      if (asked !== undefined) alwaysAt(ADDRESS)(asked);
      await settled(() => client.received.length, done + 1);
    }
    expect(client.responses).toEqual(order.map((number) => at(named(number))));
    client.close();
  });

  test('a TCP client may send a DNS query in two parts, split at any byte, or byte by byte', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    const client = await TcpClient.to(rig.at);
    const frame = framed(query(NAME));
    for (let split = 1; split < frame.length; split++) {
      client.socket.write(frame.subarray(0, split));
      await new Promise((resolve) => setImmediate(resolve));
      client.socket.write(frame.subarray(split));
      await settled(() => client.received.length, split);
    }
    expect(new Set(client.responses.map((words) => words.join(' ')))).toEqual(new Set([GOOD.join(' ')]));
    for (const byte of frame) {
      client.socket.write(Uint8Array.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await settled(() => client.received.length, frame.length);
    client.close();
  });

  test('a TCP connection has at most 64 DNS queries in flight, and the proxy reads the 65th query after the first answer', async () => {
    const received: ReceivedQuery[] = [];
    const upstream = await FakeUpstream.start((given) => received.push(given));
    const rig = await startProxy([upstream]);
    const client = await TcpClient.to(rig.at);
    client.send(...Array.from({ length: 200 }, (_, number) => query(named(number))));
    await settled(() => received.length, 64);
    expect(rig.proxy.stats().queriesAllow).toBe(64);
    const [first] = received;
    if (first !== undefined) alwaysAt(ADDRESS)(first);
    await settled(() => rig.proxy.stats().queriesAllow, 65);
    upstream.onQuery = alwaysAt(ADDRESS);
    for (const each of received.slice(1)) alwaysAt(ADDRESS)(each);
    await settled(() => client.received.length, 200);
    const wanted = Array.from({ length: 200 }, (_, number) => at(named(number)).join(' '));
    expect(new Set(client.responses.map((words) => words.join(' ')))).toEqual(new Set(wanted));
    client.close();
  });

  test('a TCP client gets the answers to open DNS queries even after it has closed its sending side', async () => {
    let received: ReceivedQuery | null = null;
    const upstream = await FakeUpstream.start((given) => {
      received = given;
    });
    const rig = await startProxy([upstream]);
    const client = await TcpClient.to(rig.at);
    client.send(query(NAME));
    client.socket.end();
    await settled(() => received !== null, true);
    alwaysAt(ADDRESS)(received as unknown as ReceivedQuery);
    await settled(() => [client.responses, client.isClosed], [[GOOD], true]);
  });

  test.each([
    ['announces a longer query than the limit', Uint8Array.of(0x10, 0x01), { too_long: 1 }],
    ['announces 65,535 bytes', Uint8Array.of(0xff, 0xff, 0), { too_long: 1 }],
    ['sends an empty frame', Uint8Array.of(0, 0), { short_header: 1 }],
    ['sends less than a DNS header', framed(new Uint8Array(11)), { short_header: 1 }],
    ['sends a response', framed(Uint8Array.of(0, 1, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0)), { response: 1 }],
  ])(
    'the DNS proxy closes a TCP connection if the client does not send a valid DNS query: the client %s',
    async (_, bytes, refused) => {
      const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
      const client = await TcpClient.to(rig.at);
      client.socket.write(bytes);
      await settled(() => client.isClosed, true);
      expect([client.received, rig.refused()]).toEqual([[], refused]);
    },
  );

  test('a malformed query over TCP gets an error response, and the next query on the connection gets an answer', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    const client = await TcpClient.to(rig.at);
    client.send(new Uint8Array(40), query(NAME));
    await settled(() => client.responses, [['FORMERR'], GOOD]);
    expect(rig.refused()).toEqual({ question_count: 1 });
    client.close();
  });

  test('the DNS proxy closes a TCP connection after the idle timeout, whether a query was sent or not', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))], { tcpIdleMs: 150 });
    const [idle, slow, used] = [await TcpClient.to(rig.at), await TcpClient.to(rig.at), await TcpClient.to(rig.at)];
    slow.socket.write(framed(query(NAME)).subarray(0, 5));
    used.send(query(NAME));
    await settled(() => [idle, slow, used].map(({ isClosed }) => isClosed), [true, true, true]);
    expect([idle.responses, slow.responses, used.responses]).toEqual([[], [], [GOOD]]);
  });

  test('the DNS proxy stops reading a TCP connection, and later closes it, if the client does not read the answers', async () => {
    const text = { type: 'TXT' as const, name: NAME, ttl: 300, data: Array(60).fill('x'.repeat(250)) as string[] };
    const upstream = await FakeUpstream.start(({ stream, answer }) =>
      stream === null ? answer({ flags: 0x0200 }) : answer({ answers: [text] }),
    );
    const rig = await startProxy([upstream], { tcpIdleMs: 400 });
    const client = await TcpClient.to(rig.at);
    client.socket.pause();
    const asked = framed(query(NAME, 'TXT'));
    for (let count = 0; count < 4_000; count++) client.socket.write(asked);
    // The client reads nothing. So it notices only when it writes that the proxy has closed the connection.
    await settled(() => !client.socket.write(asked) && client.isClosed, true);
    expect(rig.proxy.stats().queriesAllow).toBeLessThan(2_000);
    client.close();
  });
});

describe('TCP connections of one DNS client', () => {
  test('the DNS proxy accepts at most 256 TCP connections of one client, and still accepts a connection of another client', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    const clients = await Promise.all(Array.from({ length: 256 }, () => TcpClient.to(rig.at, '127.0.0.2')));
    const late = await TcpClient.to(rig.at, '127.0.0.2');
    await settled(() => late.isClosed, true);
    expect(rig.refused()).toEqual({ connection: 1 });
    const other = await TcpClient.to(rig.at, '127.0.0.3');
    for (const client of [...clients, other]) client.send(query(NAME));
    await settled(() => [...clients, other].filter(({ received }) => received.length === 1).length, 257);
    expect([clients.filter(({ isClosed }) => isClosed), other.responses]).toEqual([[], [GOOD]]);
    clients[0]?.close();
    let again = late;
    while (again.isClosed) {
      again = await TcpClient.to(rig.at, '127.0.0.2');
      again.send(query(NAME));
      await settled(() => again.isClosed || again.received.length === 1, true);
    }
    expect(again.responses).toEqual([GOOD]);
    for (const client of [...clients, other, again]) client.close();
  });
});

describe('UDP datagram to the DNS proxy', () => {
  test('a UDP datagram that repeats one byte, up to 65,507 times, causes at most an error response, and the next query gets an answer', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream]);
    const client = await UdpClient.at(rig.at);
    const sizes = [
      ...Array.from({ length: 80 }, (_, size) => size),
      511,
      512,
      513,
      1_232,
      4_095,
      4_096,
      4_097,
      9_000,
      65_507,
    ];
    for (const size of sizes) {
      // With random bytes, nearly all datagrams would fail at the check of the opcode. So the test uses four
      // fixed byte values.
      for (const byte of [0, 0x5a, 0x7f, 0xff]) client.send(Buffer.alloc(size, byte));
      client.send(query(NAME));
      const answers: string[] = [];
      while (answers.at(-1) !== GOOD.join(' ')) answers.push(responseText(decode(await client.receive())).join(' '));
      expect(answers.slice(0, -1).filter((words) => words !== 'FORMERR' && words !== 'NOTIMP')).toEqual([]);
    }
    expect(upstream.names).toEqual([NAME]);
    expect(rig.grantor.grants).toEqual([`* ${ADDRESS}`]);
    client.close();
  });

  test('a DNS query over UDP that is cut at any byte gets FORMERR, or no response if the header is incomplete', async () => {
    const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
    const rig = await startProxy([upstream]);
    const client = await UdpClient.at(rig.at);
    const whole = query(NAME);
    for (let size = 0; size < whole.length; size++) client.send(whole.subarray(0, size));
    client.send(whole);
    const errors = Array.from({ length: whole.length - 12 }, () => ['FORMERR']);
    const answers: (readonly string[])[] = [];
    for (let count = 0; count <= errors.length; count++) answers.push(responseText(decode(await client.receive())));
    expect(answers).toEqual([...errors, GOOD]);
    expect(rig.refused()).toEqual({ short_header: 12, truncated: whole.length - 12 });
    client.close();
  });

  test('a UDP datagram with a DNS response gets no response, so that two servers cannot answer each other endlessly', async () => {
    const rig = await startProxy([await FakeUpstream.start(alwaysAt(ADDRESS))]);
    const client = await UdpClient.at(rig.at);
    for (const flags of [0x8180, 0x8000, 0xf800, 0xffff]) {
      const response = query(NAME);
      response.writeUInt16BE(flags, 2);
      client.send(response);
    }
    client.send(query(NAME));
    expect(responseText(decode(await client.receive()))).toEqual(GOOD);
    expect(rig.refused()).toEqual({ response: 4 });
    client.close();
  });

  test.each([
    ['two questions', (bytes: Buffer) => bytes.writeUInt16BE(2, 4), 'FORMERR', 'question_count'],
    ['an answer record', (bytes: Buffer) => bytes.writeUInt16BE(1, 6), 'FORMERR', 'record_in_query'],
    ['another opcode', (bytes: Buffer) => bytes.writeUInt16BE(0x2900, 2), 'NOTIMP', 'opcode'],
    ['another class', (bytes: Buffer) => bytes.writeUInt16BE(3, bytes.length - 2), 'REFUSED', 'class'],
    ['a zone transfer', (bytes: Buffer) => bytes.writeUInt16BE(252, bytes.length - 4), 'NOTIMP', 'meta_type'],
    [
      'a compression pointer as name',
      (bytes: Buffer) => bytes.writeUInt16BE(0xc00c, 12),
      'FORMERR',
      'compressed_question',
    ],
  ])(
    'a UDP datagram with an invalid DNS query (%s) gets an error response and is not forwarded',
    async (_, spoil, rcode, reason) => {
      const upstream = await FakeUpstream.start(alwaysAt(ADDRESS));
      const rig = await startProxy([upstream]);
      const client = await UdpClient.at(rig.at);
      const bytes = query(NAME);
      spoil(bytes);
      client.send(bytes);
      const answer = await client.receive();
      expect([answer.readUInt16BE(0), decode(answer)]).toMatchObject([bytes.readUInt16BE(0), { rcode, answers: [] }]);
      expect([rig.refused(), upstream.names]).toEqual([{ [reason]: 1 }, []]);
      client.close();
    },
  );
});
