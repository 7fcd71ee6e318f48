import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { IPPROTO, type Packet, type Policy, type Rule, reversed } from '#contracts/policy/policy-model.js';
import { MAX_PATTERNS_OF_ADDRESS } from '#dataplane/grants/grant-layout.js';
import { compile } from '#policy/compile/compile.js';
import { denyAll } from '#test/kernel/policies.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { DROPPED, type Loaded, loadForTest, PASSED } from './loaded.js';

const SECOND_NS = 1_000_000_000n;
const UDP = { protocol: IPPROTO.udp } as const;
const opening = packet(UDP);

let kernel: Loaded;
beforeEach(() => {
  kernel = loadForTest();
});
afterEach(() => kernel.close());

function named(text: string, given: Partial<Rule> & { to?: readonly string[]; ports?: readonly string[] } = {}): Rule {
  return rule({ id: text, hostname: { kind: 'exact', labels: text.split('.'), text }, ...given });
}

function ofNames(...rules: readonly Rule[]): Policy {
  return policy([group(['10.0.0.0/8'], rules)]);
}

function grant(pattern: string, addresses: readonly number[] = [opening.destination], forNs = 3_600n * SECOND_NS) {
  const now = process.hrtime.bigint();
  return kernel.grants.add([{ pattern, addresses, expiresAtNs: now + forNs }], now);
}

const classify = (tried: Packet<number> = opening): number => kernel.runPacket(tried).returned;

describe('a hostname rule', () => {
  test('a hostname rule matches an address as soon as a DNS lookup grants the address for the pattern of the rule', () => {
    kernel.activate(compile(ofNames(named('a.test'), named('b.test', { action: 'deny' }))));
    expect(classify()).toBe(DROPPED);
    grant('a.test');
    expect(classify()).toBe(PASSED);
    expect(classify(packet({ ...UDP, destination: '192.0.2.2' }))).toBe(DROPPED);
    expect(classify(packet({ ...UDP, source: '172.16.0.1' }))).toBe(DROPPED);
  });

  test('a hostname rule matches a granted address only on the ports and destinations of the rule', () => {
    const rules = [named('a.test', { to: ['192.0.2.0/30'], protocol: IPPROTO.udp, ports: ['443'] })];
    kernel.activate(compile(ofNames(...rules)));
    const outside = packet({ ...UDP, destination: '192.0.2.4' });
    grant('a.test', [opening.destination, outside.destination]);
    expect([classify(), classify(outside), classify(packet({ ...UDP, destinationPort: 80 }))]).toEqual([
      PASSED,
      DROPPED,
      DROPPED,
    ]);
  });

  test('a hostname rule does not decide a packet that an earlier rule matches', () => {
    const before = rule({ action: 'deny', protocol: IPPROTO.udp, ports: ['443'] });
    kernel.activate(compile(ofNames(before, named('a.test'))));
    grant('a.test');
    expect([classify(), classify(packet({ ...UDP, destinationPort: 80 }))]).toEqual([DROPPED, PASSED]);
  });

  test('a hostname rule matches an address with the maximum number of grants; a grant for one more hostname is refused', () => {
    const texts = Array.from({ length: MAX_PATTERNS_OF_ADDRESS + 1 }, (_, index) => `h${index}.test`);
    const rules = texts.map((text, index) => named(text, { protocol: IPPROTO.udp, ports: [`${1_000 + index}`] }));
    kernel.activate(compile(ofNames(...rules)));
    const refused = texts.map((text) => grant(text));
    expect(refused).toEqual([...Array<number>(MAX_PATTERNS_OF_ADDRESS).fill(0), 1]);
    const judged = texts.map((_, index) => classify(packet({ ...UDP, destinationPort: 1_000 + index })));
    expect(judged).toEqual([...Array<number>(MAX_PATTERNS_OF_ADDRESS).fill(PASSED), DROPPED]);
  });
});

test('a flow that a hostname rule allowed and a later policy suspended continues after the rule is restored and DNS resolves the name to the address again', () => {
  const reply = { ...opening, ...reversed(opening) };
  const byName = compile(ofNames(named('a.test')));
  kernel.activate(byName);
  grant('a.test');
  expect([classify(), classify(reply)]).toEqual([PASSED, PASSED]);
  kernel.activate(denyAll);
  expect([classify(), classify(reply)]).toEqual([DROPPED, DROPPED]);
  kernel.activate(byName);
  // The grant was removed with its pattern.
  expect(classify(reply)).toBe(DROPPED);
  grant('a.test');
  expect([classify(reply), classify()]).toEqual([PASSED, PASSED]);
});

describe('an expired grant', () => {
  test('an expired DNS grant (address learned for a hostname pattern) admits no new flow, and ends no open flow while the policy has the pattern', async () => {
    const given = ofNames(named('a.test'));
    kernel.activate(compile(given));
    grant('a.test', undefined, SECOND_NS);
    expect(classify()).toBe(PASSED);
    let sourcePort = 1;
    await expect
      .poll(() => classify(packet({ ...UDP, sourcePort: sourcePort++ })), { timeout: 10_000, interval: 100 })
      .toBe(DROPPED);
    expect(classify()).toBe(PASSED);
    kernel.activate(compile(ofNames(...(given.groups[0]?.rules ?? []), named('b.test'))));
    expect([classify(), classify(packet({ ...UDP, sourcePort }))]).toEqual([PASSED, DROPPED]);
    kernel.activate(compile(ofNames(named('b.test'))));
    expect(classify()).toBe(DROPPED);
  });

  test('an expired DNS grant (address learned for a hostname pattern) admits no packet, even if its expiry is before the boot time of the machine', () => {
    kernel.activate(compile(ofNames(named('a.test'))));
    grant('a.test', undefined, -process.hrtime.bigint() - SECOND_NS);
    expect(classify()).toBe(DROPPED);
  });

  test('an expired DNS grant (address learned for a hostname pattern) becomes valid if the address is granted again with a later expiry, and an earlier expiry does not shorten it', () => {
    kernel.activate(compile(ofNames(named('a.test'))));
    grant('a.test', undefined, -SECOND_NS);
    expect(classify()).toBe(DROPPED);
    grant('a.test');
    grant('a.test', undefined, SECOND_NS / 100n);
    expect(classify()).toBe(PASSED);
  });
});

describe('change of the policy', () => {
  test('a DNS grant (address learned for a hostname pattern) stays valid after a change of the policy as long as any rule of the policy has its pattern', () => {
    kernel.activate(compile(ofNames(named('a.test'))));
    grant('a.test');
    kernel.activate(compile(ofNames(named('c.test'), named('b.test'), named('a.test'))));
    expect(classify()).toBe(PASSED);
    kernel.activate(compile(policy([group([], [named('a.test')])])));
    kernel.activate(compile(ofNames(named('a.test'))));
    expect(classify(packet({ ...UDP, sourcePort: 2 }))).toBe(PASSED);
  });

  test('a DNS grant (address learned for a hostname pattern) is removed with its pattern when the policy changes, and does not return when the pattern returns', () => {
    kernel.activate(compile(ofNames(named('a.test'))));
    grant('a.test');
    kernel.activate(compile(ofNames(named('b.test'))));
    kernel.activate(compile(ofNames(named('a.test'))));
    expect(classify()).toBe(DROPPED);
  });

  test('a DNS grant (learned address) for a hostname pattern of a policy that is prepared (staged) is valid as soon as that policy is in force', () => {
    kernel.activate(compile(ofNames(named('a.test'))));
    kernel.stage(compile(ofNames(named('b.test'))));
    grant('b.test');
    expect(classify()).toBe(DROPPED);
    kernel.flip();
    expect(classify()).toBe(PASSED);
  });
});

describe('a hostname rule and IPv6 packets', () => {
  const SERVER = 0x2001_0db8_0000_0002_0000_0000_0000_0001n;
  const six: Packet<bigint> = { ...opening, source: 0x2001_0db8_0000_0001_0000_0000_0000_0001n, destination: SERVER };
  const ofBoth = (...rules: readonly Rule[]): Policy => policy([group(['10.0.0.0/8', '2001:db8:0:1::/64'], rules)]);
  let dual: Loaded<'ipv6'>;
  beforeEach(() => {
    dual = loadForTest({ family: 'ipv6' });
  });
  afterEach(() => dual.close());
  const grantSix = (pattern: string, addresses: readonly bigint[] = [SERVER]): number => {
    const now = process.hrtime.bigint();
    return dual.grants.add([{ pattern, addresses, expiresAtNs: now + 3_600n * SECOND_NS }], now);
  };
  const classifySix = (given: Partial<Packet<bigint>> = {}): number => dual.runPacket({ ...six, ...given }).returned;

  test('a hostname rule matches an IPv6 address as soon as the address is granted, on the ports and destinations of the rule alone', () => {
    const rules = [
      named('a.test', { to: ['192.0.2.0/24', '2001:db8:0:2::/120'], protocol: IPPROTO.udp, ports: ['443'] }),
    ];
    dual.activate(compile(ofBoth(...rules), { ipv6: true }));
    expect(classifySix()).toBe(DROPPED);
    const outside = SERVER + 0x100n;
    expect(grantSix('a.test', [SERVER, outside])).toBe(0);
    expect([
      classifySix(),
      classifySix({ destination: outside }),
      classifySix({ destination: SERVER + 1n }),
      classifySix({ destinationPort: 80 }),
    ]).toEqual([PASSED, DROPPED, DROPPED, DROPPED]);
  });

  test('a hostname rule matches an IPv6 address with the maximum number of grants', () => {
    const texts = Array.from({ length: MAX_PATTERNS_OF_ADDRESS + 1 }, (_, index) => `h${index}.test`);
    const rules = texts.map((text, index) => named(text, { protocol: IPPROTO.udp, ports: [`${1_000 + index}`] }));
    dual.activate(compile(ofBoth(...rules), { ipv6: true }));
    expect(texts.map((text) => grantSix(text))).toEqual([...Array<number>(MAX_PATTERNS_OF_ADDRESS).fill(0), 1]);
    const judged = texts.map((_, index) => classifySix({ destinationPort: 1_000 + index }));
    expect(judged).toEqual([...Array<number>(MAX_PATTERNS_OF_ADDRESS).fill(PASSED), DROPPED]);
  });

  test('all IPv6 addresses of a grant table that is full match the rule, and others do not', () => {
    dual.close();
    dual = loadForTest({ family: 'ipv6', grantCapacity: 1_024 });
    dual.activate(compile(ofBoth(named('a.test')), { ipv6: true }));
    const addresses = Array.from({ length: 1_100 }, (_, index) => SERVER + (BigInt(index) << BigInt((index % 4) * 16)));
    const distinct = [...new Set(addresses)];
    expect(grantSix('a.test', distinct)).toBe(distinct.length - 1_024);
    const passed = distinct.filter((destination) => classifySix({ destination }) === PASSED);
    expect(passed).toEqual(distinct.slice(0, 1_024));
    expect(classify()).toBe(DROPPED);
  });
});

test('addresses beyond the capacity of the grant table stay denied, and the refused grants are counted', () => {
  kernel.close();
  kernel = loadForTest({ grantCapacity: 16 });
  kernel.activate(compile(ofNames(named('a.test'))));
  const addresses = Array.from({ length: 20 }, (_, index) => opening.destination + index);
  expect(grant('a.test', addresses)).toBe(4);
  const passed = addresses.filter((destination) => classify({ ...opening, destination }) === PASSED);
  expect(passed).toEqual(addresses.slice(0, 16));
  expect(kernel.grants.refused).toBe(4);
});
