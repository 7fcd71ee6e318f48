import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Address } from '#contracts/policy/policy-model.js';
import { parseVersion } from '#kubernetes/api-server/api-objects.js';
import { ObjectReader } from '#kubernetes/watch/object-reader.js';
import { ip, ipv6 } from './sample.js';

const metadata = {
  uid: 'u-1',
  name: 'web-0',
  namespace: 'shop',
  resourceVersion: '812',
  creationTimestamp: '2026-01-01T00:00:00Z',
  labels: { tier: 'front', app: 'web' },
};
const podJson = {
  metadata,
  spec: { nodeName: 'node-1', serviceAccountName: 'robot', containers: [{ name: 'c' }] },
  status: {
    phase: 'Running',
    podIP: '10.0.0.9',
    podIPs: [{ ip: '10.0.0.1' }, { ip: 'fd00::1' }, { ip: '10.0.0.2' }],
    startTime: '2026-01-01T00:00:07Z',
    containerStatuses: [{ state: { running: { startedAt: '2026-01-01T00:00:08Z' } } }],
  },
};
const read = (resource: 'pods' | 'nodes' | 'namespaces', value: unknown) => new ObjectReader().read(resource, value);

describe('ObjectReader', () => {
  test('without IPv6 policies, `ObjectReader` keeps the fields of a pod on which selectors depend, and only IPv4 addresses', () => {
    expect(read('pods', podJson)).toEqual({
      resource: 'pods',
      uid: 'u-1',
      name: 'web-0',
      namespace: 'shop',
      labels: ['app', 'web', 'tier', 'front'],
      serviceAccount: 'robot',
      nodeName: 'node-1',
      addresses: [ip('10.0.0.1'), ip('10.0.0.2')],
      hostNetwork: false,
      phase: 'Running',
      deleting: false,
      running: true,
      version: 812,
      started: Date.parse('2026-01-01T00:00:07Z'),
    });
  });

  test('`ObjectReader` reads a new pod with no status, no node and the default service account', () => {
    const { creationTimestamp } = metadata;
    expect(read('pods', { metadata, spec: {} })).toMatchObject({
      addresses: [],
      phase: '',
      nodeName: '',
      serviceAccount: 'default',
      running: false,
      started: Date.parse(creationTimestamp),
    });
  });

  test('`ObjectReader` reads podIP if podIPs is missing, because older servers send only podIP', () => {
    const status = { ...podJson.status, podIPs: undefined };
    expect(read('pods', { ...podJson, status })).toMatchObject({ addresses: [ip('10.0.0.9')] });
  });

  test.each(['containerStatuses', 'initContainerStatuses', 'ephemeralContainerStatuses'])(
    '`ObjectReader` finds a running container in the pod field %s',
    (list) => {
      const deleted = { ...metadata, deletionTimestamp: '2026-01-01T00:01:00Z' };
      const of = (state: object) => read('pods', { metadata: deleted, spec: {}, status: { [list]: [{ state }] } });
      expect(of({ running: {} })).toMatchObject({ deleting: true, running: true });
      expect(of({ terminated: { exitCode: 0 } })).toMatchObject({ deleting: true, running: false });
    },
  );

  test('with IPv6 policies, `ObjectReader` reads the addresses and networks of both IP families, also of an undecided object', () => {
    const reader = new ObjectReader(true);
    const addresses = [ip('10.0.0.1'), ipv6('fd00::1'), ip('10.0.0.2')];
    expect(reader.read('pods', podJson)).toMatchObject({ addresses });
    expect(reader.read('pods', { ...podJson, spec: { hostNetwork: 'true' } })).toMatchObject({
      addresses: [...addresses, ip('10.0.0.9')],
      undecided: true,
    });
    expect(reader.read('pods', { ...podJson, status: { podIP: 'FD00:0::9' } })).toMatchObject({
      addresses: [ipv6('fd00::9')],
    });
    const nodeAddresses = [
      { type: 'InternalIP', address: 'fd00::2' },
      { type: 'InternalIP', address: '192.0.2.1' },
      { type: 'ExternalIP', address: '2001:db8::1' },
    ];
    const value = { metadata, spec: { podCIDRs: ['fd00::/64', '10.1.0.0/24'] }, status: { addresses: nodeAddresses } };
    expect(reader.read('nodes', value)).toMatchObject({
      internal: [ipv6('fd00::2'), ip('192.0.2.1')],
      external: [ipv6('2001:db8::1')],
      podNetworks: [
        { address: ipv6('fd00::'), length: 64 },
        { address: ip('10.1.0.0'), length: 24 },
      ],
    });
    expect(reader.damaged).toBe(1);
    expect(reader.read('pods', { ...podJson, status: { podIPs: [{ ip: 'fe80::1%eth0' }] } })).toMatchObject({
      addresses: [],
      undecided: true,
    });
  });

  test('without IPv6 policies, `ObjectReader` reads internal and external addresses and IPv4 pod networks of a node', () => {
    const addresses = [
      { type: 'InternalIP', address: '192.0.2.1' },
      { type: 'InternalIP', address: 'fd00::2' },
      { type: 'ExternalIP', address: '198.51.100.1' },
      { type: 'Hostname', address: 'node-1' },
    ];
    const value = { metadata, spec: { podCIDRs: ['10.1.0.0/24', 'fd00::/64'] }, status: { addresses } };
    expect(read('nodes', value)).toEqual({
      resource: 'nodes',
      uid: 'u-1',
      name: 'web-0',
      labels: ['app', 'web', 'tier', 'front'],
      internal: [ip('192.0.2.1')],
      external: [ip('198.51.100.1')],
      podNetworks: [{ address: ip('10.1.0.0'), length: 24 }],
      version: 812,
      started: Date.parse(metadata.creationTimestamp),
    });
    expect(read('nodes', { ...value, spec: { podCIDR: '10.2.0.0/24' } })).toMatchObject({
      podNetworks: [{ address: ip('10.2.0.0'), length: 24 }],
    });
  });

  test('`ObjectReader` keeps a label with the key __proto__', () => {
    const value: unknown = JSON.parse(
      '{"metadata":{"uid":"u","name":"n","resourceVersion":"1","labels":{"__proto__":"a"}}}',
    );
    expect(read('namespaces', value)).toMatchObject({ labels: ['__proto__', 'a'] });
  });

  const without = (key: string) => ({ ...podJson, metadata: { ...metadata, [key]: undefined } });
  const withStatus = (status: object) => ({ ...podJson, status: { ...podJson.status, ...status } });
  const withMetadata = (fields: object) => ({ ...podJson, metadata: { ...metadata, ...fields } });
  test.each<[string, unknown]>([
    ['null', null],
    ['an array', []],
    ['a pod without uid', without('uid')],
    ['a pod without name', without('name')],
    ['a pod without namespace', without('namespace')],
    ['a pod without resource version', without('resourceVersion')],
    ['a resource version that is no number', withMetadata({ resourceVersion: '1x' })],
  ])('`ObjectReader` skips and counts a value that is no usable Kubernetes object: %s', (_, value) => {
    const reader = new ObjectReader();
    expect([reader.read('pods', value), reader.damaged]).toEqual([undefined, 1]);
    expect(reader.read('pods', podJson)).toBeDefined();
    expect(reader.damaged).toBe(1);
  });

  const own = new ObjectReader().read('pods', podJson);
  const ownAddresses = own?.resource === 'pods' ? own.addresses : [];
  const many = Array.from({ length: 17 }, (_, index) => `10.0.0.${index + 1}`);
  test.each<[string, unknown, readonly Address[]]>([
    ['labels that are no texts', withMetadata({ labels: { app: 1 } }), ownAddresses],
    ['labels beyond the bound', withMetadata({ labels: { app: 'x'.repeat(40_000) } }), ownAddresses],
    ['an address that is none', withStatus({ podIPs: [{ ip: '10.0.0' }], podIP: '10.0.0.1' }), [ip('10.0.0.1')]],
    ['an address that is a number', withStatus({ podIPs: [{ ip: 1 }, { ip: '10.0.0.1' }] }), [ip('10.0.0.1')]],
    ['more addresses than the bound', withStatus({ podIPs: many.map((address) => ({ ip: address })) }), many.map(ip)],
    ['a start that is no time', withStatus({ startTime: 'yesterday' }), ownAddresses],
    ['hostNetwork that is a text', { ...podJson, spec: { hostNetwork: 'true' } }, ownAddresses],
    ['container statuses that are an object', withStatus({ containerStatuses: {} }), ownAddresses],
  ])(
    '`ObjectReader` keeps the addresses of a pod with %s, and marks that selectors cannot be evaluated for the pod',
    (_, value, addresses) => {
      const reader = new ObjectReader();
      const record = reader.read('pods', value);
      expect(record).toMatchObject({ resource: 'pods', uid: 'u-1', undecided: true, labels: [], running: true });
      expect(record?.resource === 'pods' && addresses.every((address) => record.addresses.includes(address))).toBe(
        true,
      );
      expect(reader.damaged).toBe(1);
    },
  );

  test('`ObjectReader` keeps the addresses and networks of a node with too many labels', () => {
    const labels = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`l${index}`, 'x'.repeat(200)]));
    const addresses = [{ type: 'InternalIP', address: '192.0.2.1' }, 'damaged'];
    const value = { metadata: { ...metadata, labels }, spec: { podCIDRs: ['10.1.0.0/24', 1] }, status: { addresses } };
    expect(read('nodes', value)).toMatchObject({
      undecided: true,
      internal: [ip('192.0.2.1')],
      podNetworks: [{ address: ip('10.1.0.0'), length: 24 }],
    });
    expect(new ObjectReader().read('namespaces', value)).toBeUndefined();
  });

  test('`ObjectReader` never throws for any JSON value in place of a part of a pod', () => {
    const paths = pathsOf(podJson);
    const property = fc.property(fc.constantFrom(...paths), fc.jsonValue(), (path, part) => {
      const reader = new ObjectReader();
      const value = replaced(podJson, path, part);
      const record = reader.read('pods', value);
      expect(reader.damaged).toBe(record === undefined || record.undecided === true ? 1 : 0);
    });
    fc.assert(property, { numRuns: 3_000 });
  });

  test('`ObjectReader` reads the labels of each object, even if there are more objects than entries in the cache of labels', () => {
    const reader = new ObjectReader();
    for (let index = 0; index < 10_000; index++) {
      const value = { metadata: { ...metadata, labels: { app: `app-${index}` } } };
      expect(reader.read('namespaces', value)?.labels).toEqual(['app', `app-${index}`]);
    }
  });

  test('`ObjectReader` shares equal labels and equal names between records', () => {
    const reader = new ObjectReader();
    const [first, second] = [1, 2].map(() => reader.read('pods', JSON.parse(JSON.stringify(podJson))));
    expect(first?.labels).toBe(second?.labels);
    const other = { ...podJson, metadata: { ...metadata, labels: { tier: 'front', app: 'api' } } };
    expect(reader.read('pods', other)?.labels).toEqual(['app', 'api', 'tier', 'front']);
  });
});

describe('parseVersion', () => {
  test.each([
    ['0', 0],
    ['9007199254740991', 9007199254740991],
    ['9007199254740993', undefined],
    ['', undefined],
    ['-1', undefined],
    [7, undefined],
  ])('`parseVersion` reads the resource version %j of a Kubernetes object as %j', (text, version) =>
    expect(parseVersion(text)).toBe(version),
  );
});

type Path = readonly (string | number)[];

function pathsOf(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, part]) => pathsOf(part, [...path, key]))];
}

function replaced(value: unknown, [step, ...rest]: Path, part: unknown): unknown {
  if (step === undefined) return part;
  if (Array.isArray(value))
    return value.map((item, index) => (String(index) === step ? replaced(item, rest, part) : item));
  const object = value as Record<string, unknown>;
  return { ...object, [step]: replaced(object[step], rest, part) };
}
