import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readPolicyText } from '#config/policy/policy-text.js';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import { noGrants, type Packet, type Policy } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import type { TlsFacts } from '#contracts/service-plane/tls-facts.js';
import { readPolicy } from '#policy/check/read-policy.js';
import { compile } from '#policy/compile/compile.js';
import { decideConnection, decideRequest, StepFinder } from '#policy/evaluate/connection/connection-steps.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { LookupIndex } from '#policy/evaluate/lookup/lookup-index.js';
import { address } from '#test/policy/sample.js';
import { wireNameOf } from '#test/policy/wire-name.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const folder = new URL('../../examples/policies/', import.meta.url);

function recipe(name: string): { policy: Policy; warnings: readonly string[] } {
  const { form, json } = readPolicyText(readFileSync(new URL(`${name}.yaml`, folder), 'utf8'));
  const read = readPolicy(json, {
    form,
    integrations: new Set(),
    parseCertificate: () => undefined,
    dns: true,
    servicePlane: true,
    recordMode: 'enforce',
    fallback: 'deny',
  });
  if (!read.ok) throw new Error(`${name}: ${JSON.stringify(read.problems)}`);
  return { policy: read.policy, warnings: read.warnings.map(({ code }) => code) };
}

/**
 * Parses the text of a packet: `tcp 10.1.0.7:40000 > 192.0.2.1:443` or `icmp 10.1.0.7 > 192.0.2.1 type 8`.
 */
function packetOf(text: string): Packet<number> {
  const [, name = '', source = '', sourcePort = '40000', destination = '', port = '0', icmpType = '0'] =
    /^(\w+) ([\d.]+)(?::(\d+))? > ([\d.]+)(?::(\d+))?(?: type (\d+))?$/.exec(text) ?? [];
  const protocol = { tcp: 6, udp: 17, icmp: 1, esp: 50, gre: 47 }[name];
  if (protocol === undefined) throw new Error(`not a packet: ${text}`);
  const ports = ['icmp', 'esp', 'gre'].includes(name) ? [0, 0] : [Number(sourcePort), Number(port)];
  const [sourceOf = 0, destinationOf = 0] = ports;
  return {
    ...{
      source: address(source),
      destination: address(destination),
      protocol,
      sourcePort: sourceOf,
      destinationPort: destinationOf,
    },
    ...{ icmpType: Number(icmpType), icmpCode: 0 },
  };
}

/**
 * For each example policy: packets, the expected verdict, and the hostname pattern that is granted for the
 * destination, if any.
 */
const PACKETS: Readonly<Record<string, readonly (readonly [packet: string, verdict: string, granted?: string])[]>> = {
  'office-web': [
    ['tcp 10.1.0.7 > 192.0.2.1:80', 'allow'],
    ['tcp 10.1.255.7 > 10.9.0.1:443', 'allow'],
    ['icmp 10.1.0.7 > 192.0.2.1 type 8', 'allow'],
    ['icmp 10.1.0.7 > 192.0.2.1 type 13', 'deny'],
    ['tcp 10.1.0.7 > 192.0.2.1:22', 'deny'],
    ['udp 10.1.0.7 > 192.0.2.1:443', 'deny'],
    ['tcp 10.2.0.7 > 192.0.2.1:443', 'deny'],
  ],
  guests: [
    ['tcp 10.1.9.7 > 192.0.2.1:443', 'allow'],
    ['tcp 10.1.9.7 > 10.1.0.1:443', 'deny'],
    ['tcp 10.1.9.7 > 172.31.0.1:80', 'deny'],
    ['tcp 10.1.8.7 > 10.1.0.1:443', 'allow'],
    ['udp 10.1.9.7 > 192.0.2.1:53', 'deny'],
  ],
  'audit-first': [
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'allow'],
    ['tcp 10.1.0.7 > 192.0.2.1:22', 'audit'],
    ['udp 10.9.0.7 > 192.0.2.1:53', 'audit'],
  ],
  'backup-only': [
    ['tcp 10.2.0.5 > 10.3.0.9:873', 'allow'],
    ['udp 10.2.0.5:40000 > 10.3.0.9:40100', 'allow'],
    ['udp 10.2.0.5:40001 > 10.3.0.9:40100', 'deny'],
    ['udp 10.2.0.5:40000 > 10.3.0.9:40101', 'deny'],
    ['tcp 10.2.0.6 > 10.3.0.9:873', 'deny'],
    ['tcp 10.2.0.6 > 10.4.0.9:873', 'allow'],
  ],
  'package-mirrors': [
    ['tcp 10.3.0.9 > 192.0.2.1:443', 'deny'],
    ['tcp 10.3.0.9 > 192.0.2.1:443', 'allow', '*.debian.org'],
    ['tcp 10.3.0.9 > 192.0.2.1:80', 'deny', '*.debian.org'],
    ['tcp 10.4.0.9 > 192.0.2.1:443', 'deny', '*.debian.org'],
  ],
  'one-resolver': [
    ['udp 10.1.0.7 > 10.0.0.53:53', 'allow'],
    ['tcp 10.1.0.7 > 10.0.0.53:53', 'allow'],
    ['udp 10.1.0.7 > 192.0.2.53:53', 'deny'],
    ['tcp 10.1.0.7 > 192.0.2.53:853', 'deny'],
    ['tcp 10.1.0.7 > 192.0.2.53:443', 'allow'],
  ],
  'tls-names': [
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'redirect'],
    ['tcp 10.1.0.7 > 192.0.2.1:80', 'deny'],
    ['udp 10.1.0.7 > 192.0.2.1:443', 'deny'],
    ['tcp 10.2.0.7 > 192.0.2.1:443', 'deny'],
  ],
  'http-api': [
    ['tcp 10.1.7.7 > 192.0.2.1:443', 'redirect'],
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'redirect'],
    ['tcp 10.1.0.7 > 192.0.2.1:80', 'deny'],
  ],
  'block-legacy': [
    ['tcp 10.1.0.7 > 10.3.0.9:23', 'deny'],
    ['tcp 10.1.0.7 > 10.3.0.9:445', 'deny'],
    ['tcp 10.1.0.7 > 10.4.0.9:23', 'allow'],
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'redirect under audit'],
    ['udp 10.1.0.7 > 192.0.2.1:443', 'allow'],
  ],
  infrastructure: [
    ['udp 10.7.0.7 > 10.0.0.53:53', 'allow'],
    ['tcp 10.7.0.7 > 10.0.0.53:53', 'allow'],
    ['udp 10.7.0.7 > 10.0.0.123:123', 'allow'],
    ['icmp 10.7.0.7 > 192.0.2.1 type 8', 'allow'],
    ['udp 10.7.0.7 > 192.0.2.123:123', 'deny'],
    ['tcp 10.7.0.7 > 10.0.0.53:443', 'deny'],
    ['udp 192.0.2.7 > 10.0.0.53:53', 'deny'],
  ],
  'three-tiers': [
    ['tcp 10.1.0.7 > 10.10.1.5:443', 'allow'],
    ['tcp 10.1.0.7 > 10.10.2.5:8080', 'deny'],
    ['tcp 10.1.0.7 > 10.10.3.5:5432', 'deny'],
    ['tcp 10.10.1.5 > 10.10.2.5:8080', 'allow'],
    ['tcp 10.10.1.5 > 10.10.3.5:5432', 'deny'],
    ['tcp 10.10.1.5 > 10.10.1.6:443', 'deny'],
    ['tcp 10.10.2.5 > 10.10.3.5:5432', 'allow'],
    ['tcp 10.10.2.5 > 192.0.2.1:443', 'deny'],
    ['tcp 10.10.3.5 > 10.10.2.5:8080', 'deny'],
  ],
  tenants: [
    ['tcp 10.20.0.7 > 10.20.9.9:22', 'allow'],
    ['tcp 10.20.0.7 > 192.0.2.1:443', 'allow'],
    ['tcp 10.20.0.7 > 10.21.0.7:443', 'deny'],
    ['icmp 10.20.0.7 > 10.21.0.7 type 8', 'deny'],
    ['udp 10.21.0.7 > 10.20.0.7:53', 'deny'],
    ['udp 10.21.0.7 > 10.21.0.8:53', 'allow'],
    ['tcp 10.21.0.7 > 192.168.1.1:80', 'deny'],
    ['tcp 10.22.0.7 > 10.20.0.7:443', 'deny'],
  ],
  bastion: [
    ['tcp 10.0.0.22 > 10.3.0.9:22', 'allow'],
    ['tcp 10.0.0.22 > 10.3.0.9:3389', 'allow'],
    ['tcp 10.0.0.23 > 10.3.0.9:22', 'deny'],
    ['tcp 192.0.2.1 > 10.3.0.9:3389', 'deny'],
    ['tcp 10.0.0.23 > 10.3.0.9:443', 'allow'],
    ['tcp 10.0.0.23 > 10.4.0.9:22', 'allow'],
  ],
  dmz: [
    ['tcp 192.0.2.1 > 203.0.113.10:443', 'allow'],
    ['tcp 192.0.2.1 > 203.0.113.11:25', 'allow'],
    ['tcp 192.0.2.1 > 203.0.113.10:22', 'deny'],
    ['tcp 192.0.2.1 > 203.0.113.11:443', 'deny'],
    ['tcp 192.0.2.1 > 10.0.0.53:53', 'deny'],
    ['tcp 10.1.0.7 > 203.0.113.10:22', 'allow'],
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'allow'],
    ['tcp 10.1.0.7 > 192.0.2.1:25', 'deny'],
    ['udp 203.0.113.10 > 10.0.0.53:53', 'allow'],
    ['tcp 203.0.113.10 > 10.1.0.7:443', 'deny'],
    ['tcp 203.0.113.10 > 192.0.2.1:443', 'deny'],
    ['tcp 203.0.113.10 > 203.0.113.11:25', 'deny'],
  ],
  'cluster-pods': [
    ['udp 10.244.3.7 > 10.96.0.10:53', 'allow'],
    ['tcp 10.244.3.7 > 10.5.0.2:6443', 'allow'],
    ['tcp 10.244.3.7 > 10.5.0.2:22', 'deny'],
    ['tcp 10.244.3.7 > 10.5.0.9:10250', 'deny'],
    ['tcp 10.244.3.7 > 169.254.169.254:80', 'deny'],
    ['tcp 10.244.3.7 > 10.244.9.9:8080', 'allow'],
    ['tcp 10.244.3.7 > 192.0.2.1:443', 'allow'],
    ['tcp 10.5.0.9 > 10.5.0.2:22', 'allow'],
  ],
  'mail-relay': [
    ['tcp 10.0.0.25 > 192.0.2.25:25', 'allow'],
    ['tcp 10.1.0.7 > 192.0.2.25:25', 'deny'],
    ['tcp 10.1.0.7 > 192.0.2.25:587', 'deny'],
    ['tcp 10.1.0.7 > 10.0.0.25:587', 'allow'],
    ['tcp 10.1.0.7 > 10.0.0.25:25', 'deny'],
    ['tcp 10.1.0.7 > 192.0.2.25:443', 'allow'],
  ],
  'blocked-names': [
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'allow'],
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'deny', '*.tracker.example'],
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'deny', 'malware.example'],
    ['udp 10.1.0.7 > 192.0.2.1:3333', 'deny', '^pool[0-9]+\\..*$'],
    ['tcp 192.0.2.7 > 192.0.2.1:443', 'allow', 'malware.example'],
  ],
  'no-quic': [
    ['udp 10.1.0.7 > 192.0.2.1:443', 'deny'],
    ['tcp 10.1.0.7 > 192.0.2.1:443', 'redirect'],
    ['tcp 10.1.0.7 > 192.0.2.1:80', 'allow'],
    ['udp 10.1.0.7 > 192.0.2.1:53', 'allow'],
    ['udp 10.2.0.7 > 192.0.2.1:443', 'allow'],
  ],
  'site-vpn': [
    ['udp 192.0.2.1:500 > 198.51.100.1:500', 'allow'],
    ['udp 198.51.100.1:4500 > 192.0.2.1:4500', 'allow'],
    ['esp 192.0.2.1 > 198.51.100.1', 'allow'],
    ['gre 192.0.2.1 > 198.51.100.1', 'deny'],
    ['udp 192.0.2.1 > 198.51.100.1:51820', 'allow'],
    ['udp 192.0.2.9 > 198.51.100.1:500', 'deny'],
    ['esp 192.0.2.1 > 203.0.113.1', 'deny'],
    ['tcp 10.30.0.7 > 10.0.0.80:443', 'allow'],
    ['icmp 10.30.0.7 > 10.0.0.9 type 8', 'allow'],
    ['tcp 10.30.0.7 > 10.0.0.81:443', 'deny'],
  ],
  quarantine: [
    ['tcp 10.1.66.7 > 10.0.0.10:443', 'allow'],
    ['tcp 10.1.66.7 > 192.0.2.1:443', 'deny'],
    ['tcp 10.1.65.7 > 192.0.2.1:443', 'allow'],
    ['icmp 10.1.66.7 > 10.0.0.10 type 8', 'deny'],
  ],
};

const NANOSECONDS_OF_AN_HOUR = 3_600_000_000_000n;

let kernel: Loaded;
beforeAll(() => {
  kernel = loadForTest();
});
afterAll(() => kernel.close());

describe('example policy', () => {
  test('each file in examples/policies has a list of test packets in PACKETS, and each list has a file', () => {
    const files = readdirSync(folder).filter((file) => file.endsWith('.yaml'));
    const names = files.map((file) => file.replace('.yaml', ''));
    expect(Object.keys(PACKETS).sort()).toEqual(names.sort());
    expect(names).toHaveLength(20);
  });

  const WARNINGS: Readonly<Record<string, readonly string[]>> = {
    'block-legacy': ['quic_not_covered'],
    'blocked-names': ['deny_by_name', 'deny_by_name', 'deny_by_name'],
    'package-mirrors': ['name_without_sni'],
  };
  test.each(Object.keys(PACKETS))('the example policy %s is valid and causes only the listed warnings', (name) => {
    expect(recipe(name).warnings).toEqual(WARNINGS[name] ?? []);
  });

  test.each(Object.entries(PACKETS))(
    'example policy %s: the reference evaluator returns the expected verdict, and the datapath passes or drops each packet by it',
    (name, rows) => {
      const { policy } = recipe(name);
      kernel.activate(compile(policy));
      for (const [text, verdict, granted] of rows) {
        const packet = packetOf(text);
        kernel.forget();
        if (granted !== undefined) {
          const now = process.hrtime.bigint();
          const expiresAtNs = now + NANOSECONDS_OF_AN_HOUR;
          kernel.grants.add([{ pattern: granted, addresses: [packet.destination], expiresAtNs }], now);
        }
        const grants = granted === undefined ? noGrants : { has: () => true };
        const { verdict: decided, audited } = evaluate(policy, packet, grants);
        const said = decided === 'redirect' && audited ? 'redirect under audit' : decided;
        // No service plane runs in this test: the datapath drops a packet with the verdict redirect, or
        // passes the packet in audit mode.
        const returned = verdict === 'deny' || verdict === 'redirect' ? DROPPED : PASSED;
        expect([text, said, kernel.runPacket(packet).returned]).toEqual([text, verdict, returned]);
      }
    },
  );
});

describe('example policy with hostname rules', () => {
  test.each([
    ['package-mirrors', '10.3.0.9', 'deb.debian.org', 'allow'],
    ['package-mirrors', '10.3.0.9', 'debian.org', 'deny'],
    ['blocked-names', '10.1.0.7', 'a.tracker.example', 'deny'],
    ['blocked-names', '10.1.0.7', 'malware.example', 'deny'],
    ['blocked-names', '10.1.0.7', 'pool7.coins.example', 'deny'],
    ['blocked-names', '10.1.0.7', 'carpool.example', 'allow'],
    ['blocked-names', '10.1.0.7', 'www.example.com', 'allow'],
  ])('example policy %s: the DNS lookup from %s of %s gets the verdict %s', (name, source, hostname, verdict) => {
    const index = new LookupIndex(compile(recipe(name).policy).lookups);
    expect(verdictOf(index.decide(address(source), wireNameOf(hostname)))).toBe(verdict);
  });
});

describe('example policy with TLS rules', () => {
  const hello = (sni: string | null): TlsFacts => ({
    hello: { kind: 'hello', sni, ech: false, alpn: [], offersTls13: true },
    certificate: { kind: 'unasked' },
  });
  const stepsOf = (name: string, source: string) => {
    const finder = new StepFinder({ generation: 1, program: null, policy: recipe(name).policy, scope: NO_SELECTORS });
    return finder.stepsOf(packetOf(`tcp ${source} > 192.0.2.1:443`), noGrants);
  };
  const connection = (name: string, facts: TlsFacts) => {
    const judged = decideConnection(stepsOf(name, '10.1.0.7'), facts);
    return judged.kind === 'decided' ? judged.verdict : judged.kind;
  };
  const unreadable: TlsFacts = { ...hello(null), hello: { kind: 'unreadable', fault: 'not_tls' } };

  test.each([
    ['tls-names', 'the server name login.example.com', 'allow', hello('login.example.com')],
    ['tls-names', 'the server name login.example.net', 'allow', hello('login.example.net')],
    ['tls-names', 'the server name www.login.example.net', 'deny', hello('www.login.example.net')],
    ['tls-names', 'no server name', 'deny', hello(null)],
    ['tls-names', 'bytes that are not TLS', 'deny', unreadable],
    ['no-quic', 'another server name', 'allow', hello('www.example.com')],
    ['no-quic', 'a name below the blocked name', 'deny', hello('cdn.video.example')],
    ['no-quic', 'the blocked name', 'deny', hello('video.example')],
    ['no-quic', 'a name that ends like the blocked name', 'allow', hello('myvideo.example')],
    ['no-quic', 'no server name', 'deny', hello(null)],
    ['block-legacy', 'any server name', 'allow', hello('any.example.com')],
    ['block-legacy', 'no server name', 'audit', hello(null)],
    ['block-legacy', 'bytes that are not TLS', 'audit', unreadable],
  ])(
    'example policy %s: a connection with %s gets the verdict %s, also with an ECH extension',
    (name, _, verdict, facts) => {
      const { hello } = facts;
      const ofBrowser = hello.kind === 'hello' ? { ...facts, hello: { ...hello, ech: true } } : facts;
      expect([connection(name, facts), connection(name, ofBrowser)]).toEqual([verdict, verdict]);
    },
  );

  test.each([
    ['10.1.0.7', 'GET', '/v2/public/list', 'allow'],
    ['10.1.0.7', 'HEAD', '/v2/public/list', 'allow'],
    ['10.1.0.7', 'POST', '/v2/public/list', 'deny'],
    ['10.1.7.7', 'POST', '/v2/public/list', 'allow'],
    ['10.1.7.7', 'GET', '/v2/public/list', 'allow'],
    ['10.1.7.7', 'POST', '/v2/private', 'deny'],
    ['10.1.0.7', 'GET', '/v2/public/../private', 'deny'],
    ['10.1.0.7', 'GET', '/v2/public%2f../private', 'deny'],
  ])('example policy http-api: the request from %s (%s %s) gets the verdict %s', (source, method, path, verdict) => {
    const steps = stepsOf('http-api', source);
    const request = { method, host: 'api.example.com', path, query: null, headers: [] };
    expect(decideConnection(steps, hello('api.example.com'))).toEqual({ kind: 'intercept', from: 0 });
    expect(decideRequest(steps, 0, hello('api.example.com'), request).verdict).toBe(verdict);
  });
});
