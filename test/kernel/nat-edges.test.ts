import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { formatAddress } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { compile } from '#policy/compile/compile.js';
import { TCP } from '#test/dataplane/frame.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { flushConntrack } from './conntrack.js';
import { errorAbout, parts, type SentPacket } from './nat-frames.js';
import { echo, NatNode, only, ROUTER, tcp, udp } from './nat-node.js';
import { allowAll, denyAll } from './policies.js';

const { client, clientOther, nodeWan, server } = ADDRESSES;
const PORT = 8_000;
/** The node forwards this port of its address to PORT of the client. */
const PUBLIC = 9_000;
const MASQUERADE = 'add rule ip mine post oifname "wan0" masquerade';
const DNAT = `add rule ip mine pre ip daddr ${nodeWan} meta l4proto { tcp, udp } th dport ${PUBLIC} dnat to ${client}:${PORT}`;
const judges = hasNetfilterPrograms();
const outwards = only(client, [server, PORT]);
const inwards = only(server, [client, PORT]);

let node: NatNode;
/** The source port of the flows of one test. */
let port = 5_000;
beforeAll(async () => {
  node = await NatNode.create('nat-edges');
  await node.topology.node.must('ip', 'route', 'add', '10.99.0.1/32', 'via', server);
});
beforeEach(async () => {
  port++;
  await node.begin(MASQUERADE, DNAT);
});
afterAll(() => node?.remove());

/** The client sends a datagram, which the node masquerades, and the server replies. */
async function exchange(): Promise<{ readonly request: SentPacket; readonly reply: SentPacket }> {
  const request = udp([client, port], [server, PORT]);
  const reply = udp([server, PORT], [nodeWan, port]);
  await node.passes('client', request, 'server', `udp ${nodeWan}:${port} > ${server}:${PORT}`);
  await node.passes('server', reply, 'client', `udp ${server}:${PORT} > ${client}:${port}`);
  return { request, reply };
}

describe('an ICMP error that quotes a translated packet', () => {
  skipUnless(judges, LACKS.netfilterPrograms).test(
    'an ICMP error of the server or of a router about a masqueraded packet reaches the client',
    async () => {
      node.police(outwards);
      await exchange();
      const sent = udp([nodeWan, port], [server, PORT]);
      const about = `about udp ${client}:${port} > ${server}:${PORT}`;
      const fromServer = errorAbout(sent, server, 3, 3);
      await node.passes('server', fromServer, 'client', `icmp 3/3 ${server} > ${client} ${about}`);
      const fromRouter = errorAbout(sent, ROUTER, 11, 0);
      await node.passes('server', fromRouter, 'client', `icmp 11/0 ${ROUTER} > ${client} ${about}`);
      node.enforce(denyAll);
      await node.isDropped('server', fromServer, 'policy_deny');
    },
  );

  test('an ICMP error of the client about a reply on a masqueraded flow reaches the server', async () => {
    node.police(outwards);
    await exchange();
    const error = errorAbout(udp([server, PORT], [client, port]), client, 3, 3);
    const text = `icmp 3/3 ${nodeWan} > ${server} about udp ${server}:${PORT} > ${nodeWan}:${port}`;
    await node.passes('client', error, 'server', text);
    node.enforce(denyAll);
    await node.isDropped('client', error, 'policy_deny');
  });

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'an ICMP error about a packet of a connection by DNAT reaches the sender on either side',
    async () => {
      node.police(inwards);
      const opening = udp([server, port], [nodeWan, PUBLIC]);
      await node.passes('server', opening, 'client', `udp ${server}:${port} > ${client}:${PORT}`);
      const fromClient = errorAbout(udp([server, port], [client, PORT]), client, 3, 3);
      const about = `about udp ${server}:${port} > ${nodeWan}:${PUBLIC}`;
      await node.passes('client', fromClient, 'server', `icmp 3/3 ${nodeWan} > ${server} ${about}`);
      const answer = udp([client, PORT], [server, port]);
      await node.passes('client', answer, 'server', `udp ${nodeWan}:${PUBLIC} > ${server}:${port}`);
      const fromServer = errorAbout(udp([nodeWan, PUBLIC], [server, port]), server, 3, 3);
      const aboutAnswer = `about udp ${client}:${PORT} > ${server}:${port}`;
      await node.passes('server', fromServer, 'client', `icmp 3/3 ${server} > ${client} ${aboutAnswer}`);
      node.enforce(denyAll);
      await node.isDropped('server', fromServer, 'policy_deny');
    },
  );

  test('an ICMP error from outside that quotes a packet with untranslated addresses does not belong to the flow, and the policy decides it', async () => {
    node.police(outwards);
    await exchange();
    await node.isDropped('server', errorAbout(udp([client, port], [server, PORT]), server, 3, 3), 'policy_deny');
    await node.passes(
      'client',
      tcp([client, port], [server, PORT], TCP.syn),
      'server',
      `tcp ${nodeWan}:${port} > ${server}:${PORT} syn`,
    );
    await node.isDropped(
      'server',
      errorAbout(tcp([client, port], [server, PORT], TCP.syn), server, 3, 1),
      'policy_deny',
    );
    if (!judges) return;
    node.enforce(inwards);
    const opening = udp([server, port], [nodeWan, PUBLIC]);
    await node.passes('server', opening, 'client', `udp ${server}:${port} > ${client}:${PORT}`);
    await node.isDropped('server', errorAbout(udp([client, PORT], [server, port]), server, 3, 3), 'policy_deny');
  });

  test('an ICMP error about a flow that NAT does not translate reaches the sender of the quoted packet', async () => {
    node.police(inwards);
    await node.passes(
      'server',
      udp([server, port], [client, PORT]),
      'client',
      `udp ${server}:${port} > ${client}:${PORT}`,
    );
    const error = errorAbout(udp([server, port], [client, PORT]), client, 3, 3);
    const text = `icmp 3/3 ${client} > ${server} about udp ${server}:${port} > ${client}:${PORT}`;
    await node.passes('client', error, 'server', text);
  });

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'an ICMP error about a masqueraded flow that was cut is classified by the policy as a new packet',
    async () => {
      node.police(outwards);
      await exchange();
      // Remove the flow. Conntrack still has an entry for the packet, but the datapath has no flow for it.
      await node.datapath.cutFlows({ filter: anyFlow(), after: null, limit: 1_000 });
      await node.isDropped('server', errorAbout(udp([nodeWan, port], [server, PORT]), server, 3, 3), 'policy_deny');
    },
  );
});

describe('fragments', () => {
  const arrives = (from: string, to: string): string[] => [
    `udp ${from} > ${to} fragment`,
    `${from.split(':')[0]} > ${to.split(':')[0]} later fragment`,
  ];

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'fragments pass in both directions of a masqueraded flow, and by DNAT',
    async () => {
      node.police(only(client, [server, PORT]));
      const out = parts(udp([client, port], [server, PORT]), port);
      await node.passes('client', out, 'server', ...arrives(`${nodeWan}:${port}`, `${server}:${PORT}`));
      const back = parts(udp([server, PORT], [nodeWan, port]), port);
      await node.passes('server', back, 'client', ...arrives(`${server}:${PORT}`, `${client}:${port}`));
      node.enforce(inwards);
      const inward = parts(udp([server, port], [nodeWan, PUBLIC]), port);
      await node.passes('server', inward, 'client', ...arrives(`${server}:${port}`, `${client}:${PORT}`));
      node.enforce(denyAll);
      await node.isDropped('server', inward, 'policy_deny');
    },
  );
});

skipUnless(judges, LACKS.netfilterPrograms).test(
  'two clients that ping through masquerade with the same identifier each get their own replies',
  async () => {
    node.police(allowAll);
    await node.passes('client', echo(client, server, port), 'server', `echo ${port} ${nodeWan} > ${server}`);
    node.send('client', echo(clientOther, server, port));
    let second: string | undefined;
    await expect.poll(() => (second = node.received('server')[0]), { interval: 5 }).toBeDefined();
    const id = Number(/^echo (\d+) /.exec(second ?? '')?.[1]);
    expect(id).not.toBe(port);
    const replyTo = (icmpId: number): SentPacket => echo(server, nodeWan, icmpId, 0);
    await node.passes('server', replyTo(id), 'client', `reply ${port} ${server} > ${clientOther}`);
    await node.passes('server', replyTo(port), 'client', `reply ${port} ${server} > ${client}`);
    node.enforce(denyAll);
    await node.isDropped('server', replyTo(id), 'policy_deny');
  },
);

describe('source ports that the node translates', () => {
  const OUTSIDE = 50_000;

  test('replies to a source port that the node translates count for the address of the client', async () => {
    await node.translate(`add rule ip mine post oifname "wan0" meta l4proto udp masquerade to :${OUTSIDE}`);
    node.police(outwards);
    const request = udp([client, port], [server, PORT]);
    const reply = udp([server, PORT], [nodeWan, OUTSIDE]);
    await node.passes('client', request, 'server', `udp ${nodeWan}:${OUTSIDE} > ${server}:${PORT}`);
    await node.passes('server', reply, 'client', `udp ${server}:${PORT} > ${client}:${port}`);
    node.enforce(denyAll);
    await node.isDropped('server', reply, 'policy_deny');
  });

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'a packet of another host to a translated source port that is open for every host (full cone) is a new flow',
    async () => {
      await node.translate(
        `add rule ip mine post oifname "wan0" meta l4proto udp masquerade to :${OUTSIDE}`,
        `add rule ip mine pre iifname "wan0" udp dport ${OUTSIDE} dnat to ${client}:${port}`,
      );
      node.police(outwards);
      const request = udp([client, port], [server, PORT]);
      await node.passes('client', request, 'server', `udp ${nodeWan}:${OUTSIDE} > ${server}:${PORT}`);
      const unasked = udp([ROUTER, 7_000], [nodeWan, OUTSIDE]);
      await node.isDropped('server', unasked, 'policy_deny');
      node.enforce(only(ROUTER, [client, port]));
      await node.passes('server', unasked, 'client', `udp ${ROUTER}:7000 > ${client}:${port}`);
    },
  );
});

skipUnless(judges, LACKS.netfilterPrograms).test(
  "a reply after the end of its conntrack entry goes to the node, and the client's next packet creates another entry",
  async () => {
    node.police(outwards);
    const { request, reply } = await exchange();
    flushConntrack();
    const refused = `icmp 3/3 ${nodeWan} > ${server} about udp ${server}:${PORT} > ${nodeWan}:${port}`;
    await node.passes('server', reply, 'server', refused);
    expect(node.received('client')).toEqual([]);
    // Conntrack has an entry for the packet to the node now, so it gives the client another port.
    node.send('client', request);
    let text: string | undefined;
    await expect.poll(() => (text = node.received('server')[0]), { interval: 5 }).toBeDefined();
    const given = Number(new RegExp(`^udp ${nodeWan}:(\\d+) > ${server}:${PORT}$`).exec(text ?? '')?.[1]);
    const answer = udp([server, PORT], [nodeWan, given]);
    await node.passes('server', answer, 'client', `udp ${server}:${PORT} > ${client}:${port}`);
    node.enforce(denyAll);
    await node.isDropped('server', answer, 'policy_deny');
  },
);

describe('ended flows with a conntrack entry', () => {
  const cut = () => node.datapath.cutFlows({ filter: anyFlow(), after: null, limit: 1_000 });

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'a datagram of the server is a new flow after its flow was cut, although the conntrack entry still exists',
    async () => {
      node.police(outwards);
      const { request, reply } = await exchange();
      await cut();
      await node.isDropped('server', reply, 'policy_deny');
      await node.passes('client', request, 'server', `udp ${nodeWan}:${port} > ${server}:${PORT}`);
      await node.passes('server', reply, 'client', `udp ${server}:${PORT} > ${client}:${port}`);
    },
  );

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'a TCP packet of either side is out of state after its flow was cut, although the conntrack entry still exists',
    async () => {
      node.police(outwards);
      const outside = `tcp ${nodeWan}:${port}`;
      const sent = (flags: number): SentPacket => tcp([client, port], [server, PORT], flags);
      const back = (flags: number): SentPacket => tcp([server, PORT], [nodeWan, port], flags);
      await node.passes('client', sent(TCP.syn), 'server', `${outside} > ${server}:${PORT} syn`);
      await node.passes(
        'server',
        back(TCP.syn | TCP.ack),
        'client',
        `tcp ${server}:${PORT} > ${client}:${port} syn+ack`,
      );
      await node.passes('client', sent(TCP.ack), 'server', `${outside} > ${server}:${PORT} ack`);
      await cut();
      await node.isDropped('server', back(TCP.ack), 'out_of_state');
      await node.isDropped('client', sent(TCP.ack), 'out_of_state');
    },
  );
});

skipUnless(judges, LACKS.netfilterPrograms).test(
  'a connection by DNAT that a rule inspects is refused, because the forward hook is too late for inspection',
  async () => {
    const inspected = rule({ to: [client], ports: [String(PORT)], protocol: IPPROTO.tcp, tls: { mode: 'metadata' } });
    node.police(compile(policy([group([server], [inspected])])));
    await node.isDropped('server', tcp([server, port], [nodeWan, PUBLIC], TCP.syn), 'service_plane_absent');
  },
);

skipUnless(judges, LACKS.netfilterPrograms).test(
  'a connection to a translated address beyond the node is cut if a new policy denies the address before or after the translation',
  async () => {
    await node.translate(MASQUERADE, `add rule ip mine pre ip daddr 10.99.0.1 udp dport 80 dnat to ${server}:${PORT}`);
    const real = [server, PORT] as const;
    const request = udp([client, port], ['10.99.0.1', 80]);
    const text = `udp ${nodeWan}:${port} > ${server}:${PORT}`;
    node.police(only(client, real, ['10.99.0.1', 80]));
    await node.passes('client', request, 'server', text);
    await node.passes('server', udp([server, PORT], [nodeWan, port]), 'client', `udp 10.99.0.1:80 > ${client}:${port}`);
    node.enforce(only(client, real));
    for (let count = 0; count < 3; count++) await node.isDropped('client', request, 'policy_deny');
    node.enforce(only(client, ['10.99.0.1', 80]));
    for (let count = 0; count < 3; count++) await node.isDropped('client', request, 'policy_deny');
    node.enforce(only(client, real, ['10.99.0.1', 80]));
    await node.passes('client', request, 'server', text);
  },
);

skipUnless(judges, LACKS.netfilterPrograms).test(
  'a denied TCP packet to a translated address beyond the node does not pass as a reply from that address',
  async () => {
    const wire = '10.99.0.1';
    await node.translate(MASQUERADE, `add rule ip mine pre ip daddr ${wire} tcp dport 80 dnat to ${server}:${PORT}`);
    const allowing = (id: string, source: string, to: string, ...ports: string[]) => ({
      ...group([source], [rule({ protocol: IPPROTO.tcp, to: [to], ports })]),
      id,
    });
    const outside = `tcp ${nodeWan}:${port} > ${server}:${PORT}`;
    const rest = [allowing('real', client, server, String(PORT)), allowing('replies', wire, client)];
    node.police(compile(policy([allowing('wire', client, wire, '80'), ...rest])));
    const sent = (flags: number): SentPacket => tcp([client, port], [wire, 80], flags);
    const accepted = tcp([server, PORT], [nodeWan, port], TCP.syn | TCP.ack);
    await node.passes('client', sent(TCP.syn), 'server', `${outside} syn`);
    await node.passes('server', accepted, 'client', `tcp ${wire}:80 > ${client}:${port} syn+ack`);
    await node.passes('client', sent(TCP.ack), 'server', `${outside} ack`);
    node.enforce(compile(policy(rest)));
    for (let count = 0; count < 3; count++) await node.isDropped('client', sent(TCP.ack), 'policy_deny');
  },
);

describe('outside interface policed alone', () => {
  const outside = { interfaces: ['wan0'] };
  const flows = async (): Promise<string[]> => {
    const { items } = await node.datapath.flows({ filter: anyFlow(), after: null, limit: 1_000 });
    return items.map(({ source, destination, ports }) =>
      [source, destination].map((address, side) => `${formatAddress(address)}:${ports?.[side]}`).join(' > '),
    );
  };

  test('with only the outside interface policed, replies of a masqueraded flow pass, and the flow has the translated address', async () => {
    node.police(denyAll, outside);
    await exchange();
    expect(await flows()).toContain(`${nodeWan}:${port} > ${server}:${PORT}`);
  });

  skipUnless(judges, LACKS.netfilterPrograms).test(
    'with only the outside interface policed, the forward judge (netfilter program) decides a connection by DNAT, and a policy change cuts it',
    async () => {
      node.police(inwards, outside);
      const opening = udp([server, port], [nodeWan, PUBLIC]);
      const answer = udp([client, PORT], [server, port]);
      await node.passes('server', opening, 'client', `udp ${server}:${port} > ${client}:${PORT}`);
      await node.passes('client', answer, 'server', `udp ${nodeWan}:${PUBLIC} > ${server}:${port}`);
      await node.passes('server', opening, 'client', `udp ${server}:${port} > ${client}:${PORT}`);
      node.enforce(denyAll);
      await node.isDropped('server', opening, 'policy_deny');
    },
  );
});
