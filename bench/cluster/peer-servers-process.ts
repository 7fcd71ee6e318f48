import { createServer } from 'node:https';
import { createServer as createSilent } from 'node:net';
import { fingerprintOf } from '#cluster/peers/peer-identity.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';

/**
 * Serves the findings of nodes, each on a port of its own on loopback. The last `silent` nodes accept
 * connections, and do not respond. Prints the addresses and fingerprints as one line of JSON.
 */
const [count = 0, silent = 0, findings = 0] = process.argv.slice(2).map(Number);

const finding = (node: number, index: number) => ({
  id: (node * findings + index).toString(16).padStart(32, '0'),
  finding_type: 'l4_deny',
  ...{ policy_id: 'policy-1', generation: 7, source_group: 'lan', rule: null, decided_by: 'group_default' },
  ...{ src_ip: '10.0.0.1', dst_ip: '192.0.2.1', dst_port: 443, proto: 6, hostname: null, sni: null, http: null },
  ...{ icmp_type: null, icmp_code: null, drop_reason: 'policy_deny', reason: null, effective_action: 'deny' },
  ...{ actor: null, operation: null, target: null, remote: null, status: null, etag: null },
  first_seen: '2026-01-31T12:00:00.000Z',
  last_seen: new Date(Date.UTC(2026, 0, 31, 12) + node * 7 + index * 1_000).toISOString(),
  count: 3,
  node_ids: [`s${node}`],
});

const nodes: { address: string; certificate: string }[] = [];
for (let node = 0; node < count; node++) {
  const identity = selfSigned(`s${node}`);
  const items = Array.from({ length: findings }, (_, index) => finding(node, index)).reverse();
  const page = (ids: readonly string[]) =>
    JSON.stringify({
      items: ids.length === 0 ? items : items.filter(({ id }) => ids.includes(id)),
      next_cursor: null,
      ...{ partial: false, node_errors: [], nodes_queried: 1, nodes_responded: 1 },
    });
  const server =
    node >= count - silent
      ? createSilent()
      : createServer({ ...identity, minVersion: 'TLSv1.3' }, (request, response) => {
          const ids = new URL(request.url ?? '/', 'https://node').searchParams.getAll('id');
          response.setHeader('content-type', 'application/json').end(page(ids));
        });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new Error('the HTTPS server does not listen on a TCP port');
  nodes.push({ address: `127.0.0.1:${address.port}`, certificate: fingerprintOf(identity.cert) });
}
process.stdout.write(`${JSON.stringify(nodes)}\n`);
