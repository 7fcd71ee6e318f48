import { receiveMessageOnPort } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import type { GrantAnswer, GrantRequest } from '#contracts/datapath/grant-messages.js';
import type { Program } from '#contracts/policy/program.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { compile } from '#policy/compile/compile.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { datapathOptions } from './datapath-options.js';
import { topologyOfFile } from './topology-of-file.js';

const SECOND_NS = 1_000_000_000n;
const SERVER = address(ADDRESSES.server);

const topology = topologyOfFile('learned');

const open = (more: { readonly programCapacity?: number } = {}): Datapath =>
  openDatapath(datapathOptions(topology.pinPath, more));

function ofNames(...names: readonly string[]): Program {
  const rules = names.map((text) => rule({ hostname: { kind: 'exact', labels: text.split('.'), text } }));
  return compile(policy([group(['0.0.0.0/0'], rules)]));
}

/** Returns whether the server replies to an echo request of the client. Each request opens a new flow. */
async function reaches(): Promise<boolean> {
  const { code } = await topology.client.run('ping', '-n', '-c', '1', '-W', '1', ADDRESSES.server);
  return code === 0;
}

test('the datapath passes packets to a granted address, also after restarts, until the grant is revoked or expires', async () => {
  let datapath = open();
  try {
    await datapath.open();
    await datapath.attach();
    await datapath.stage(ofNames('a.test', 'b.test'), 1);
    await datapath.flip();
    expect(await reaches()).toBe(false);
    const expiresAtNs = process.hrtime.bigint() + 600n * SECOND_NS;
    const grant = { pattern: 'b.test', addresses: [SERVER], expiresAtNs };
    expect(await datapath.grant([grant])).toEqual({ refused: 0 });
    expect(await reaches()).toBe(true);

    await datapath.close();
    expect(await reaches()).toBe(true);
    datapath = open();
    expect(await datapath.open()).toMatchObject({ adopted: true });
    expect(await datapath.learned()).toEqual([]);
    await datapath.stage(ofNames('c.test', 'b.test'), 2);
    await datapath.flip();
    expect(await reaches()).toBe(true);
    const [learned] = await datapath.learned();
    expect(learned).toEqual({
      pattern: 'b.test',
      family: 'ipv4',
      addresses: Uint32Array.of(SERVER),
      expiresAtNs: BigUint64Array.of((expiresAtNs >> 27n) << 27n),
    });
    expect((await datapath.stats()).maps).toMatchObject({
      grants: { entries: 1, capacity: 1_024 },
      patterns: { entries: 2, capacity: 262_144 },
    });

    await datapath.revoke([grant]);
    expect(await reaches()).toBe(false);
    await datapath.grant([{ ...grant, expiresAtNs: process.hrtime.bigint() + SECOND_NS }]);
    expect(await reaches()).toBe(true);
    // Close the datapath, so that no process removes the grant. The BPF program must compare the expiry of
    // the grant with the clock of the kernel.
    await datapath.close();
    await expect.poll(reaches).toBe(false);
  } finally {
    await datapath.close();
    detach(topology.pinPath);
  }
});

test('the datapath thread answers grant requests from a MessagePort even while it loads a policy into the kernel', async () => {
  const datapath = open({ programCapacity: 65_536 });
  // A large policy, so that the datapath thread needs some time to stage the policy.
  const named = ofNames(...Array.from({ length: 5_000 }, (_, index) => `n${index}.test`));
  await datapath.open();
  await datapath.stage(named, 1);
  await datapath.flip();
  const port = await datapath.grantPort();
  const staged = datapath.stage(named, 2);
  const ids = Array.from({ length: 1_000 }, (_, id) => id);
  const expiriesNs = Float64Array.of(Number(process.hrtime.bigint() + 60n * SECOND_NS));
  for (const id of ids) {
    const request: GrantRequest = { id, patterns: ['n7.test'], addresses: [SERVER], expiriesNs };
    port.postMessage(request);
  }
  await staged;
  // The answers must already be in the MessagePort: if the datapath thread had waited for the end of staging,
  // the answers would arrive later.
  const answers = ids.map(() => receiveMessageOnPort(port)?.message as GrantAnswer | undefined);
  expect(answers).toEqual(ids.map((id) => ({ id, refused: 0 })));
  expect((await datapath.learned()).map(({ pattern, addresses }) => [pattern, [...addresses]])).toEqual([
    ['n7.test', [SERVER]],
  ]);
  port.start();
  const closed = new Promise<void>((resolve) => port.on('close', resolve));
  await datapath.close();
  detach(topology.pinPath);
  await closed;
});
