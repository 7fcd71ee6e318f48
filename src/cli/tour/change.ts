import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type NodeProcess, program } from './node-process.js';
import { commandLine, lineReader, print, put, result, step } from './steps.js';
import { ADDRESSES, type Topology } from './topology.js';

/**
 * The time after which the node reverts the change of the tour. It is short, so that the tour does not take
 * long.
 */
const CONFIRM = '10s';
const PORT = 80;
const BACK_MS = 40_000;

const policy = (network: string) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'admins',
      mode: 'enforce',
      sources: { cidrs: [network] },
      rules: [
        { id: 'gateway', action: 'allow', match: { dst_ips: [ADDRESSES.server], proto: 'tcp', dst_ports: [PORT] } },
      ],
    },
  ],
});
const flow = { from: [ADDRESSES.client], to: [ADDRESSES.server], proto: 'tcp', ports: [PORT] };
const ASSERTIONS = { assertions: [{ id: 'admins-reach-the-server', always: flow }] };

/**
 * Runs the third part of the quick start: a change of the policy locks its author out, and reverts itself;
 * an assertion then refuses the same change. Writes the files of the commands to `folder`.
 */
export async function changeAct(topology: Topology, node: NodeProcess, folder: string): Promise<void> {
  print('\nThird act: a change that locks its author out. The admin at the client has a session to the server.');
  const change = 'change.json';
  const assertions = 'assertions.json';
  await writeFile(join(folder, change), JSON.stringify(policy('10.77.9.0/24')));
  await writeFile(join(folder, assertions), JSON.stringify(ASSERTIONS));
  const weir = commandLine({ WEIR_SERVER: node.url, WEIR_TOKEN: await node.token() }, folder);

  step(13, 'The policy allows the network of the admin, 10.77.1.0/24.');
  await put(node, policy('10.77.1.0/24'));
  const session = topology.client.start(process.execPath, [
    program('tour-traffic'),
    ...['connect', ADDRESSES.server, `${PORT}`, '--every', '200', '--timeout', '1000'],
  ]);
  const lines = lineReader(session);
  try {
    await lines.until((line) => line === 'pong 3', 'three numbers come back');
    result('the session is open; 1, 2, 3 came back');

    step(14, 'A change has a wrong digit: 10.77.9.0/24. What it would do, before it is made:');
    await weir(['policy', 'diff', '-f', change], 3);

    step(15, `The admin applies it anyway, to be confirmed within ${CONFIRM}.`);
    await weir(['policy', 'apply', '-f', change, '--confirm-within', CONFIRM]);
    await lines.until((line) => line.startsWith('silent'), 'the session is silent');
    result('the session is silent, and the admin cannot confirm the change');
    const back = await lines.until((line) => line.startsWith('pong'), 'the session goes on', BACK_MS);
    result(`the change reverted itself, and the same session goes on: ${back.slice('pong '.length)} came back`);

    step(16, 'An assertion says what each policy must allow.');
    await weir(['assertions', 'apply', '-f', assertions]);
    await weir(['policy', 'apply', '-f', change], 1);
    await lines.until((line) => line.startsWith('pong'), 'the session goes on');
    result('the change is refused, and the session goes on');
  } finally {
    session.kill('SIGKILL');
  }
}
