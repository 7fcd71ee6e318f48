import { spawn } from 'node:child_process';
import { findingsQuery } from '#api/findings/audit.schema.js';
import type { Management } from '#api/management.js';
import { findingsOfNodes } from '#api/nodes/findings-of-nodes.js';
import { firstLine } from '#cli/tour/node-process.js';
import { PeerClient } from '#cluster/peers/peer-client.js';
import { Peers } from '#cluster/peers/peers.js';
import type { ClusterMember } from '#cluster/records.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';
import { built } from '#threads/built-file.js';
import type { Bench, Row } from './bench.js';

const NODES = 200;
const SILENT = 5;
/** The number of findings on one page: the default limit of the API. */
const FINDINGS = 100;
const ROUNDS = 5;
/** How long a request for findings waits for the responses of other nodes, see `findingsOfNodes`. */
const LIMIT_MS = 2_000;

/**
 * One page of the findings of 200 nodes, of which five accept connections and do not respond. The nodes are
 * servers in another process: only the asking node is real.
 */
export const clusterFindingsBench: Bench = { name: 'cluster-findings', run: allFindings };

async function allFindings(): Promise<Row[]> {
  const rows: Row[] = [];
  for (const silent of [0, SILENT]) {
    const words = [NODES, silent, FINDINGS].map(String);
    const servers = spawn(process.execPath, [built('bench/cluster/peer-servers-process.js'), ...words], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      const nodes = JSON.parse(await firstLine(servers)) as { address: string; certificate: string }[];
      const management = managementOver(nodes);
      const times: number[] = [];
      for (let round = 0; round <= ROUNDS; round++) {
        const began = performance.now();
        const query = findingsQuery.parse({});
        const place = { limit: FINDINGS, cursor: null };
        const { nodes_responded: responded } = await findingsOfNodes(management, query, new URLSearchParams(), place);
        if (responded !== NODES + 1 - silent)
          throw new Error(`${responded} nodes answered the query for findings, expected ${NODES + 1 - silent}`);
        times.push(performance.now() - began);
      }
      const [first = Number.NaN, ...later] = times;
      const slowest = Math.max(...later);
      if (silent === 0) {
        rows.push({ what: `findings of ${NODES} nodes: the first request`, value: first, unit: 'ms' });
        rows.push({ what: `findings of ${NODES} nodes: later requests, the slowest`, value: slowest, unit: 'ms' });
      } else {
        const what = `findings of ${NODES} nodes, ${SILENT} silent: the slowest`;
        rows.push({ what, value: Math.max(...times), unit: 'ms', atMost: LIMIT_MS + 100 });
      }
    } finally {
      servers.kill('SIGKILL');
    }
  }
  return rows;
}

/**
 * Returns the part of a node that answers a request for findings. `nodes` are the other nodes of its cluster.
 */
function managementOver(nodes: readonly { readonly address: string; readonly certificate: string }[]): Management {
  const identity = { ...selfSigned('asking'), ca: null };
  const members = nodes.map(
    ({ address, certificate }, index): ClusterMember => ({
      ...{ id: `s${index}`, identity: '', boot: '', address, version: '', since: '', generation: 7 },
      certificates: [certificate],
    }),
  );
  const client = new PeerClient(() => identity);
  const peers = new Peers({ self: 'asking', client, members: async () => members, registered: async () => [] });
  const findings = { nodeId: 'asking', query: async () => ({ items: [], next: null }) };
  return { peers, findings } as unknown as Management;
}
