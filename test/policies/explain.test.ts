import { afterEach, describe, expect, test } from 'vitest';
import { NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import type { Address, Packet } from '#contracts/policy/policy-model.js';
import { UnforwardedNames } from '#dns/resolver/unforwarded-names.js';
import { type ExplainPorts, explainLane, explainPolicy } from '#policies/explain.js';
import { FairQueue, QueueFull } from '#policies/fair-queue.js';
import { createPolicyThread, type PolicyThread } from '#policies/thread/policy-thread.js';
import type { PacketQuery } from '#policy/explain/explain.js';
import { NO_NODE } from '#policy/explain/node-effects.js';
import { packet } from '#test/policy/sample.js';
import { openMemoryStore } from '#test/store/memory-store.js';

const threads: PolicyThread[] = [];
afterEach(async () => {
  await Promise.all(threads.splice(0).map((thread) => thread.close()));
});

async function ports(draftBudgetMs: number): Promise<ExplainPorts> {
  const open = () => {
    const thread = createPolicyThread();
    threads.push(thread);
    return thread;
  };
  return {
    policies: (await openMemoryStore()).policies,
    active: explainLane(open(), 30_000),
    drafts: explainLane(open(), draftBudgetMs),
    node: async () => NO_NODE,
    unforwardedReason: () => null,
    membership: () => NOTHING_LISTED,
    ownerOf: () => null,
    enforcedInstead: async () => 17,
    surroundings: { fallback: 'deny', dns: true, servicePlane: true, policesNode: false, ipv6: false },
  };
}

const query = { packet: packet(), hostname: `${'a'.repeat(60)}.${'b'.repeat(60)}.${'a'.repeat(60)}.${'b'.repeat(60)}` };
/**
 * A draft policy whose hostnames are regular expressions that take the evaluator a long time. Validation
 * accepts the policy.
 */
const costly: PolicyConfig = {
  source_groups: [
    {
      id: 'g',
      mode: 'enforce',
      sources: { cidrs: ['0.0.0.0/0'] },
      rules: Array.from({ length: 100 }, (_, at) => ({
        id: `r${at}`,
        action: 'allow',
        match: { dns_hostname: `([\\pL.]?){0,190}z${at}` },
      })),
    },
  ],
};

describe('`FairQueue`', () => {
  test('`FairQueue` alternates between API users that have waiting tasks, and runs one task at a time', async () => {
    const queue = new FairQueue(10);
    const begun: string[] = [];
    let running = 0;
    const run = (subject: string, name: string) =>
      queue.run(subject, async () => {
        begun.push(name);
        running += 1;
        await new Promise((resolve) => setImmediate(resolve));
        expect(running).toBe(1);
        running -= 1;
      });
    const all = ['1', '2', '3', '4'].map((number) => run('eve', `eve ${number}`));
    await Promise.all([...all, run('bob', 'bob 1'), run('ada', 'ada 1'), run('bob', 'bob 2')]);
    expect(begun).toEqual(['eve 1', 'eve 2', 'bob 1', 'ada 1', 'eve 3', 'bob 2', 'eve 4']);
  });

  test('`FairQueue` continues with the next task after a failed task, and throws QueueFull if one API user has too many waiting tasks', async () => {
    const queue = new FairQueue(1);
    const failing = queue.run('eve', () => Promise.reject(new Error('no')));
    const waiting = queue.run('eve', async () => 'done');
    await expect(queue.run('eve', async () => 'more')).rejects.toBeInstanceOf(QueueFull);
    const other = queue.run('bob', async () => 'bob');
    await expect(failing).rejects.toThrow('no');
    expect(await Promise.all([waiting, other])).toEqual(['done', 'bob']);
  });
});

describe('`explainPolicy`', () => {
  test('`explainPolicy` returns a result to one API user within 1 s while 20 drafts of the maximum cost of another API user wait', async () => {
    const asked = await ports(30_000);
    await explainPolicy(asked, { query }, 'bob');
    await explainPolicy(asked, { policy: {}, query }, 'bob');
    let answered = 0;
    const eve = Array.from({ length: 20 }, () =>
      explainPolicy(asked, { policy: costly, query }, 'eve').then((outcome) => {
        answered += 1;
        return outcome;
      }),
    );
    const began = performance.now();
    let longestTurn = 0;
    let last = began;
    const heart = setInterval(() => {
      longestTurn = Math.max(longestTurn, performance.now() - last);
      last = performance.now();
    }, 5);
    expect(await explainPolicy(asked, { query }, 'bob')).toMatchObject({ decision: 'deny' });
    const active = performance.now() - began;
    expect(await explainPolicy(asked, { policy: {}, query }, 'bob')).toMatchObject({ decision: 'deny' });
    clearInterval(heart);
    console.log({ active, draft: performance.now() - began, answered, longestTurn });
    expect(answered).toBeLessThan(3);
    expect(active).toBeLessThan(1_000);
    expect(longestTurn).toBeLessThan(500);
    expect(await eve[0]).toMatchObject({ decision: 'deny' });
  });

  test('`explainPolicy` refuses a draft that exceeds the time budget as too_costly, and then explains the next draft', async () => {
    const asked = await ports(1);
    expect(await explainPolicy(asked, { policy: costly, query }, 'eve')).toMatchObject({
      kind: 'refused',
      code: 'too_costly',
    });
    const again = { ...asked, drafts: explainLane(asked.drafts.thread, 30_000) };
    expect(await explainPolicy(again, { policy: {}, query }, 'eve')).toMatchObject({ decision: 'deny' });
  });
});

test('`explainPolicy` denies DNS queries that the DNS proxy answers itself, even for a draft that allows them', async () => {
  const proxied = new UnforwardedNames(
    ['use-application-dns.net', '*.canary.test'].map((text) => ({
      kind: text.startsWith('*') ? 'suffix' : 'exact',
      labels: text.replace('*.', '').split('.'),
      text,
    })),
  );
  const asked = { ...(await ports(30_000)), unforwardedReason: (name: string) => proxied.reasonFor(name) };
  const answerTo = (name: string, policy?: PolicyConfig) =>
    explainPolicy(asked, { ...(policy === undefined ? {} : { policy }), query: { source: 1, query: name } }, 'ada');
  const denied = { decision: 'deny', effective_action: 'deny', mode: 'enforce', source_group: null, walk: [] };
  const canary = 'dns.canary_names contains this name: the DNS proxy answers it with NXDOMAIN before the policy';
  const allowing: PolicyConfig = { default_policy: 'allow' };
  for (const name of ['use-application-dns.net', 'a.b.canary.test'])
    expect(await answerTo(name, allowing)).toMatchObject({ ...denied, reason: expect.stringContaining(canary) });
  for (const name of ['resolver.arpa', '_dns.resolver.arpa'])
    expect(await answerTo(name)).toMatchObject({ ...denied, reason: expect.stringContaining('without records') });
  for (const name of ['canary.test', 'xresolver.arpa', '', 'b\u00fc'.repeat(30)])
    expect(await answerTo(name, allowing)).toMatchObject({ decision: 'allow', walk: [{ matched: true }] });
});

test('`explainPolicy` names the owners of source and destination', async () => {
  const owner = { integration: 'prod', kind: 'pod', namespace: 'shop', name: 'web' } as const;
  const asked = packet();
  const named = { ...(await ports(30_000)), ownerOf: (of: Address) => (of === asked.destination ? owner : null) };
  const explained = await explainPolicy(named, { query: { packet: asked } }, 'ada');
  expect(explained).toMatchObject({ owners: { source: null, destination: owner }, selected_by: null });
});

describe('`explainPolicy` for a denied packet', () => {
  const rule = (match: object, action = 'allow') => ({ id: 'r', action, match });
  const draft = (...rules: object[]): PolicyConfig =>
    ({
      default_policy: 'deny',
      source_groups: [{ id: 'lan', mode: 'enforce', sources: { cidrs: ['10.0.0.0/8'] }, rules }],
    }) as PolicyConfig;
  const CLIENT = packet({ source: '10.0.0.7' }).source;
  const SERVER = packet({ source: '192.0.2.10' }).source;
  const web = draft(rule({ proto: 'tcp', dst_ports: [443] }));
  const fromServer = packet({
    source: '192.0.2.10',
    sourcePort: 443,
    destination: '10.0.0.7',
    destinationPort: 40_000,
  });
  const opener = packet({ source: '10.0.0.7', sourcePort: 40_000, destination: '192.0.2.10', destinationPort: 443 });
  const replyTo = async (policy: PolicyConfig, asked: PacketQuery, more: Partial<ExplainPorts> = {}) => {
    const explained = await explainPolicy({ ...(await ports(30_000)), ...more }, { policy, query: asked }, 'ada');
    return 'kind' in explained ? explained : explained.reply_to;
  };

  test('`explainPolicy` returns for a denied packet the first packet of the flow that the policy allows in the opposite direction', async () => {
    expect(await replyTo(web, { packet: fromServer })).toEqual(opener);
    const ping = draft(rule({ proto: 'icmp', icmp_types: [8] }));
    const icmp = { protocol: 1, sourcePort: 0, destinationPort: 0 };
    expect(await replyTo(ping, { packet: { ...fromServer, ...icmp, icmpType: 0 } })).toEqual({
      ...{ ...opener, ...icmp, icmpType: 8 },
    });
  });

  test('`explainPolicy` returns for a denied packet the first packet of a connection that the policy decides by its server name', async () => {
    const inspected = draft(rule({ dst_ports: [443], tls: { mode: 'metadata', sni: ['a.test'] } }));
    expect(await replyTo(inspected, { packet: fromServer })).toEqual(opener);
  });

  test('`explainPolicy` returns, for a denied packet from a server, the client packet that would open the flow to the granted address of the server', async () => {
    const granted = async ({ destination }: Packet) =>
      destination === SERVER ? { ...NO_NODE, granted: ['a.test'] } : NO_NODE;
    const named = draft(rule({ dns_hostname: 'a.test' }));
    expect(await replyTo(named, { packet: fromServer })).toBeNull();
    expect(await replyTo(named, { packet: fromServer }, { node: granted })).toEqual(opener);
  });

  test.each<[string, PolicyConfig, PacketQuery]>([
    ['the policy denies the opposite direction too', draft(), { packet: fromServer }],
    ['the packet is allowed', web, { packet: opener }],
    ['the request has no source port', web, { packet: fromServer, sourcePortAssumed: true }],
    [
      'the packet is an ICMP query',
      draft(rule({ proto: 'icmp' })),
      { packet: { ...fromServer, protocol: 1, icmpType: 8 } },
    ],
  ])(
    '`explainPolicy` returns no first packet of an opposite flow unless such a flow could explain the denied packet: %s',
    async (_, policy, asked) => {
      expect(await replyTo(policy, asked)).toBeNull();
    },
  );

  test('`explainPolicy` returns no first packet if the opposite direction passes without a policy, because such a packet opens no flow', async () => {
    const arrival = { policed: ['wan0'], by: { interface: 'lan0' } };
    const node = async ({ source }: Packet) => (source === CLIENT ? { ...NO_NODE, arrival } : NO_NODE);
    expect(await replyTo(web, { packet: fromServer }, { node })).toBeNull();
  });
});
