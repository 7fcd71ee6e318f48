import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { skipUnless } from '#test/skip-unless.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('memory', []);
  const rules = Array.from({ length: 100 }, (_, at) => ({ match: { proto: 'tcp', dst_ports: [1 + at] } }));
  await rig.put(policyOf(rules));
});
afterAll(() => rig?.remove());

/** Returns the resident memory of the node's mappings whose line in `smaps` contains `name`, in MiB. */
function residentMiB(name: string): number {
  const mappings = readFileSync(`/proc/${rig.node.pid}/smaps`, 'utf8').split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  const own = mappings.filter((mapping) => mapping.slice(0, mapping.indexOf('\n')).includes(name));
  return own.reduce((sum, mapping) => sum + Number(/^Rss:\s+(\d+)/m.exec(mapping)?.[1] ?? 0) / 1024, 0);
}

test('a node does not map the flow table, the compiled policies or the DNS grants (addresses of names) into memory while it does not use them', async () => {
  // Mapped are the ring buffer (8 MiB, mapped twice), members (2 MiB), and data of the programs (1 MiB).
  expect(residentMiB('bpf-map')).toBeLessThan(16);
  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
  expect(residentMiB('bpf-map')).toBeLessThan(16);
});

// The limit is that of Node.js 20: other major versions need another amount of memory.
skipUnless(process.versions.node.startsWith('20.'), 'the limit is that of Node.js 20').test(
  'a node with 100 rules uses less than 190 MiB (200 MB) after it released the memory of its start',
  async () => {
    await expect.poll(() => residentMiB(''), { interval: 1_000 }).toBeLessThan(190);
  },
);

test('a node maps the DNS grants (addresses of names) into memory when its policy has hostname patterns', async () => {
  await rig.put(policyOf([{ match: { dns_hostname: 'www.example' } }]));
  expect(residentMiB('bpf-map')).toBeGreaterThan(32);
});
