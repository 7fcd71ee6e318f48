import { describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import type { ExplainNode } from '#contracts/policy/explain-facts.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { explain } from '#policy/explain/explain.js';
import { NO_NODE } from '#policy/explain/node-effects.js';
import { group, policy, rule } from './sample.js';

const address = (text: string): number => parseIpv4Address(text) ?? 0;
const [CLIENT, PUBLIC, SERVICE, SERVER] = ['10.0.0.1', '203.0.113.1', '10.96.0.1', '10.0.0.9'] as const;
/** An address that no packet has. It fills the list of destinations: an empty list matches each packet. */
const UNUSED = '192.0.2.255';
const packetTo = (destination: string, destinationPort: number): Packet<number> => ({
  ...{ source: address(CLIENT), destination: address(destination), protocol: 6, sourcePort: 40_000, destinationPort },
  ...{ icmpType: 0, icmpCode: 0 },
});
const allowing = (...to: readonly string[]) => policy([group([CLIENT], [rule({ id: 'web', to: [...to, UNUSED] })])]);
const nodeWith = (isService: boolean, real: string | null): ExplainNode => ({
  ...NO_NODE,
  own: [address(PUBLIC)],
  translation: { isService, real: real === null ? null : { address: address(real), port: 8_080 } },
});

/** Explains a packet to port 80 that conntrack translates to port 8080 of `real`. */
function explained(to: string, isService: boolean, real: string | null, ...allowed: readonly string[]) {
  const node = nodeWith(isService, real);
  const server = real === null ? undefined : { packet: packetTo(real, 8_080), node };
  const { decision, reason, unknown } = explain(allowing(...allowed), { packet: packetTo(to, 80), node, real: server });
  return { decision, reason, unknown };
}

describe('explain, on a node that translates addresses', () => {
  test.each([
    ['an address of the node', PUBLIC, false],
    ['a service address', SERVICE, true],
  ])(
    '`explain` decides a packet to %s by the real server alone if the node translates the address',
    (_, to, isService) => {
      expect(explained(to, isService, SERVER, SERVER)).toEqual({
        decision: 'allow',
        reason: `rule web of source group group is the first that matches: allowed; conntrack translates ${to}:80 to ${SERVER}:8080, which the policy sees`,
        unknown: [],
      });
      expect(explained(to, isService, SERVER, to)).toMatchObject({ decision: 'deny', unknown: [] });
    },
  );

  test('`explain` requires that the policy allows both destinations if the node translates an address beyond the node', () => {
    expect(explained(SERVICE, false, SERVER, SERVICE, SERVER)).toMatchObject({ decision: 'allow', unknown: [] });
    expect(explained(SERVICE, false, SERVER, SERVICE)).toMatchObject({
      decision: 'deny',
      reason: expect.stringMatching(/denied; conntrack translates .*, which the policy sees$/),
    });
    expect(explained(SERVICE, false, SERVER, SERVER)).toMatchObject({
      decision: 'deny',
      reason: expect.stringMatching(/denied; conntrack translates .*, and the policy must allow both$/),
    });
  });

  test('`explain` names the owner of the server to which an address is translated, and returns it as owner of the destination', () => {
    const owner = { integration: 'prod', kind: 'pod', namespace: 'shop', name: 'api' } as const;
    const node = nodeWith(true, SERVER);
    const explained = explain(allowing(SERVER), {
      packet: packetTo(SERVICE, 80),
      node,
      real: { packet: packetTo(SERVER, 8_080), node },
      owners: [{ address: address(SERVER), owner }],
    });
    expect(explained.owners).toEqual({ source: null, destination: owner });
    expect(explained.reason).toContain(`translates ${SERVICE}:80 to ${SERVER}:8080 (pod shop/api of prod), which`);
  });

  test('`explain` lists the translation as unknown if conntrack has no connection for an address of the node or a service', () => {
    expect(explained(PUBLIC, false, null)).toMatchObject({
      decision: 'allow',
      reason: expect.stringContaining('ask with the address of the server'),
      unknown: ['translation'],
    });
    expect(explained(SERVICE, true, null)).toMatchObject({ decision: 'deny', unknown: ['translation'] });
    expect(explained(SERVER, false, null)).toMatchObject({ decision: 'deny', unknown: [] });
  });

  test('`explain` does not mention conntrack for a destination that is not translated', () => {
    const node = nodeWith(false, PUBLIC);
    const packet = packetTo(PUBLIC, 8_080);
    const { reason, unknown } = explain(allowing(), { packet, node, real: { packet, node } });
    expect(reason).not.toContain('conntrack');
    expect(unknown).toEqual([]);
  });
});
