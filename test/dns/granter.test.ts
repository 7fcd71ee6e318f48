import { MessageChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import type { GrantAccess } from '#contracts/grant-access.js';
import type { GrantRequest } from '#contracts/grant-messages.js';
import type { OpenedWriter } from '#dataplane/grants/grant-writer.js';
import { Granter } from '#dns/granter.js';
import { settled } from './settled.js';

const ACCESS: GrantAccess = {
  grants: { fd: -1, id: 1 },
  patterns: { fd: -1, id: 2 },
  capacity: 8,
  ledger: new SharedArrayBuffer(4),
  gate: new SharedArrayBuffer(4),
  owner: 3,
};

/** A granter whose writer does what it is told, and the other end of its port. */
function rig(patienceMs = 10_000) {
  const told: string[] = [];
  const written: string[] = [];
  const state = { writes: true, opens: true };
  const writer: OpenedWriter = {
    grant: (patterns, addresses) => {
      if (state.writes) written.push(`${patterns.join()} ${addresses.join()}`);
      return state.writes;
    },
    close: () => told.push('closed'),
  };
  const listener = { refused: (count: number) => told.push(`refused ${count}`), unwritable: () => told.push('no way') };
  const granter = new Granter({ hasToSend: () => {} }, listener, patienceMs, () => {
    if (!state.opens) throw new Error('no such map');
    return writer;
  });
  const { port1, port2 } = new MessageChannel();
  granter.use(port1);
  onTestFinished(() => port2.close());
  const granted: string[] = [];
  const grant = (address: number): void =>
    granter.grant(['a', 'b'], [address], { expiryNs: 9, isAwaited: true, done: (how) => granted.push(how) });
  const asked = (port: MessagePort = port2): GrantRequest | undefined =>
    (receiveMessageOnPort(port) as { message: GrantRequest } | undefined)?.message;
  return { granter, state, told, written, granted, grant, asked, own: port2 };
}

async function withWriter(patienceMs?: number) {
  const made = rig(patienceMs);
  made.own.postMessage(ACCESS);
  made.grant(1);
  // What was asked for before the writer was there is written once it is.
  await settled(() => {
    made.granter.tick();
    return made.written;
  }, ['a,b 1']);
  expect(made.asked()).toMatchObject({ patterns: ['a', 'b'] });
  made.granted.length = 0;
  made.written.length = 0;
  return made;
}

test('what can be written is in force before the call returns, and nobody is asked', async () => {
  const { granter, granted, written, grant, asked } = await withWriter();
  grant(2);
  expect([granted, written]).toEqual([['all'], ['a,b 2']]);
  granter.flush();
  expect(asked()).toBeUndefined();
});

test('what could not be written at first is tried again before anybody is asked, and while the answer is awaited', async () => {
  const { granter, state, granted, grant, asked, own } = await withWriter();
  state.writes = false;
  grant(2);
  state.writes = true;
  granter.flush();
  expect([granted, asked()]).toEqual([['all'], undefined]);
  state.writes = false;
  grant(3);
  granter.flush();
  const { id = 0 } = asked() ?? {};
  granter.tick();
  expect(granted).toEqual(['all']);
  state.writes = true;
  granter.tick();
  expect(granted).toEqual(['all', 'all']);
  own.postMessage({ id, refused: null });
  grant(4);
  await settled(() => granted, ['all', 'all', 'all']);
});

test('what cannot be written is what the answer says, or is not granted', async () => {
  const { granter, state, told, granted, grant, asked, own } = await withWriter(0);
  state.writes = false;
  grant(2);
  granter.flush();
  own.postMessage({ id: asked()?.id, refused: 1 });
  await settled(() => granted, ['some']);
  expect(told).toContain('refused 1');
  grant(3);
  granter.flush();
  granter.tick();
  expect(granted).toEqual(['some', 'none']);
});

test('without a port nothing is written any more', async () => {
  const { granter, told, granted, written, grant } = await withWriter();
  granter.use(null);
  grant(2);
  expect([told, granted, written]).toEqual([['closed'], ['none'], []]);
});

test('where there is no way to write, everything is asked for, and that is said', async () => {
  const { granter, state, told, grant, asked, own } = rig();
  state.opens = false;
  own.postMessage(ACCESS);
  await settled(() => told, ['no way']);
  grant(2);
  granter.flush();
  expect(asked()).toMatchObject({ addresses: Uint32Array.of(2, 2) });
});

test('what an earlier port said last is not heard', async () => {
  const { granter, told, written, grant, own } = rig();
  const { port1, port2 } = new MessageChannel();
  onTestFinished(() => port2.close());
  own.postMessage(ACCESS);
  granter.use(port1);
  port2.postMessage({ id: 0, refused: 5 });
  await settled(() => told, ['refused 5']);
  grant(2);
  expect(written).toEqual([]);
});
