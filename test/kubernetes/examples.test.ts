import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { formatAddress, formatPrefix } from '#addresses/ip-address.js';
import { readPolicyText } from '#config/policy/policy-text.js';
import type { PolicyConfig } from '#contracts/policy/policy-document.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import type { KubernetesObject } from '#kubernetes/watch/objects.js';
import { readPolicy } from '#policy/check/read-policy.js';
import { selectorOf } from '#policy/model/sources/selector.js';
import { ip, namespace, node, pod, scope } from './sample.js';

const folder = new URL('../../examples/policies/kubernetes/', import.meta.url);
const text = (file: string) => readPolicyText(readFileSync(new URL(file, folder), 'utf8'));

const quarantined = { 'security.example.com/quarantine': 'true' };
const OBJECTS: readonly KubernetesObject[] = [
  namespace('shop'),
  namespace('etl', { team: 'data' }),
  pod('web', { addresses: [ip('10.244.0.1')], labels: { app: 'web' } }),
  pod('web-in-quarantine', { addresses: [ip('10.244.0.2')], labels: { app: 'web', ...quarantined } }),
  pod('web-of-etl', { addresses: [ip('10.244.0.3')], namespace: 'etl', labels: { app: 'web' } }),
  pod('loader', { addresses: [ip('10.244.0.4')], namespace: 'etl', serviceAccount: 'loader' }),
  pod('loader-of-shop', { addresses: [ip('10.244.0.5')], serviceAccount: 'loader' }),
  pod('test-loader', {
    ...{ addresses: [ip('10.244.0.6')], namespace: 'etl', serviceAccount: 'loader', labels: { tier: 'test' } },
  }),
  node('master', {
    ...{ internal: [ip('10.5.0.1')], external: [ip('198.51.100.1')] },
    labels: { 'node-role.kubernetes.io/control-plane': '' },
  }),
  node('worker', {
    ...{ internal: [ip('10.5.0.2')], external: [ip('198.51.100.2')], labels: { pool: 'batch' } },
    podNetworks: [{ address: ip('10.244.7.0'), length: 24 }],
  }),
];

/** Returns the addresses and networks that the selectors of each group of a policy select. */
function sourcesOf({ source_groups: groups = [] }: PolicyConfig) {
  const memberships = new Memberships();
  const selectors = groups.map(({ sources }) => (sources.kubernetes ?? []).map(selectorOf));
  memberships.setSelectors(selectors.flat());
  for (const resource of ['namespaces', 'pods', 'nodes'] as const) {
    const objects = OBJECTS.filter((object) => object.resource === resource);
    memberships.receive('prod', scope(resource), { type: 'listed', objects, version: 1 });
  }
  memberships.drainChanges();
  const { networks } = memberships.resolution;
  return groups.map(({ id }, index) => {
    const keys = (selectors[index] ?? []).map(({ key }) => key);
    const addresses = keys.flatMap((key) => [...memberships.membersOf(key)]).map(formatAddress);
    return [id, ...addresses, ...keys.flatMap((key) => networks.get(key) ?? []).map(formatPrefix)];
  });
}

describe('example policy with Kubernetes selectors', () => {
  test.each([
    [
      'pods.yaml',
      [
        ['quarantine', '10.244.0.2'],
        ['shop-web', '10.244.0.1', '10.244.0.2'],
        ['loaders', '10.244.0.4'],
      ],
    ],
    [
      'nodes.yaml',
      [
        ['control-plane', '10.5.0.1', '198.51.100.1'],
        ['batch', '10.244.7.0/24'],
      ],
    ],
  ])('the Kubernetes selectors of the example policy %s select the expected addresses', (file, expected) => {
    expect(sourcesOf(JSON.parse(text(file).json) as PolicyConfig)).toEqual(expected);
  });

  test.each(readdirSync(folder))('the example policy %s is valid and causes no warning', (file) => {
    const { form, json } = text(file);
    const read = readPolicy(json, {
      form,
      integrations: new Set(['prod']),
      parseCertificate: () => undefined,
      dns: true,
      servicePlane: true,
      recordMode: 'enforce',
      fallback: 'deny',
    });
    expect(read.ok ? read.warnings : read.problems).toEqual([]);
  });
});
