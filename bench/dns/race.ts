import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, temporaryFolder } from '#cli/tour/topology.js';
import type { Bench, Row } from '../bench.js';
import { putRules, startWeir } from './proxies.js';

const ROUNDS = 100_000;
const CHANGED_ROUNDS = 20_000;
const AT_ONCE = 64;
const PORT = 443;
/**
 * The upstream server resolves each name to an address in this network. The test server accepts connections
 * to all addresses of the network.
 */
const NETWORK = '198.18.0.0/15';
const program = fileURLToPath(new URL('./rounds-process.js', import.meta.url));

type Outcome = {
  readonly rounds: number;
  readonly failures: Readonly<Record<string, number>>;
  readonly seconds: number;
};

function failuresIn(failures: Outcome['failures']): number {
  if (Object.keys(failures).length > 0) console.log(`  ${JSON.stringify(failures)}`);
  return Object.values(failures).reduce((sum, count) => sum + count, 0);
}

/**
 * Runs rounds of a DNS lookup and an immediate connection to the returned address. The bound is 0 failed
 * connections, because the grant of an address must be in force before the client gets the answer.
 */
async function run(): Promise<readonly Row[]> {
  const topology = await createTopology('race');
  const folder = await temporaryFolder('race');
  try {
    const { node, server, client } = topology;
    await server.must('ip', 'route', 'add', 'local', NETWORK, 'dev', 'lo');
    await node.must('ip', 'route', 'add', NETWORK, 'via', ADDRESSES.server);
    const file = join(folder, 'upstream.conf');
    await writeFile(
      file,
      `setLocal("${ADDRESSES.server}:53")
setACL("0.0.0.0/0")
addAction(AllRule(), LuaAction(function(dq)
  local number = tonumber(dq.qname:toString():match("^n(%d+)"))
  return DNSAction.Spoof, string.format("198.%d.%d.%d", 18 + math.floor(number / 65536), math.floor(number / 256) % 256, number % 256)
end))
`,
    );
    const upstream = server.start('dnsdist', ['-C', file, '--supervised', '--disable-syslog']);
    upstream.stdout?.resume();
    upstream.stderr?.resume();
    await firstLine(server.start(process.execPath, [program, 'serve', String(PORT)]));
    const weir = await startWeir(topology, ['*.example.com'], { rebind_allow: ['*.example.com'] });
    const ask = async (rounds: number): Promise<Outcome> => {
      const words = [program, 'ask', ADDRESSES.nodeLan, String(PORT), String(rounds), String(AT_ONCE)];
      return JSON.parse(await firstLine(client.start(process.execPath, words))) as Outcome;
    };
    const { failures, seconds } = await ask(ROUNDS);
    const failed = failuresIn(failures);
    // Run more rounds while the policy is replaced in a loop. The names that these rounds look up already
    // have grants from the first rounds.
    let changes = 0;
    let isOver = false;
    const changing = ask(CHANGED_ROUNDS).finally(() => {
      isOver = true;
    });
    let slowestMs = 0;
    while (!isOver) {
      const before = performance.now();
      await putRules(weir.node, ['*.example.com', `other${changes++}.example.org`]);
      slowestMs = Math.max(slowestMs, performance.now() - before);
    }
    const interrupted = failuresIn((await changing).failures);
    const reply = await weir.node.request('GET', '/api/v1/stats');
    const { maps } = (reply.body as { dataplane: { maps: Record<string, { entries: number }> } }).dataplane;
    await weir.end();
    return [
      {
        what: 'lookups with an immediate connection, proxy on one core',
        value: ROUNDS / seconds,
        unit: 'rounds/s',
      },
      {
        what: `connections that failed at their first packet, of ${ROUNDS.toLocaleString('en')}`,
        value: failed,
        unit: '',
        atMost: 0,
      },
      { what: 'addresses learned at the end', value: maps.grants?.entries ?? 0, unit: '', atLeast: ROUNDS },
      {
        what: `connections that failed during policy writes, of ${CHANGED_ROUNDS.toLocaleString('en')}`,
        value: interrupted,
        unit: '',
        atMost: 0,
      },
      { what: 'policy writes meanwhile', value: changes, unit: '' },
      { what: 'slowest of these policy writes', value: slowestMs, unit: 'ms' },
    ];
  } finally {
    await topology.remove();
    await rm(folder, { recursive: true, force: true });
  }
}

export const dnsRaceBench: Bench = { name: 'dns-race', run };
