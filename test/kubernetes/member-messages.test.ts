import { afterEach, expect, test, vi } from 'vitest';
import type { MembersMessage } from '#contracts/kubernetes-source.js';
import { Memberships } from '#kubernetes/memberships.js';
import { MemberMessages } from '#kubernetes/thread/member-messages.js';
import { ObjectChanges } from '#kubernetes/thread/stored-objects.js';
import { ip, pod, podSelector, scope } from './sample.js';

afterEach(() => {
  vi.restoreAllMocks();
});

/** Opens the messages of an integration without pods. `change` gives it a pod with an address. */
function opened() {
  const objects = new ObjectChanges();
  const memberships = new Memberships({ objectChanged: (...changed) => objects.changed(...changed) });
  const sent: MembersMessage[] = [];
  const integrationOf = (name: string) => ({ cluster: 'cluster', objects: memberships.objectsOf(name) });
  const messages = new MemberMessages({ memberships, objects, integrationOf }, (message) => sent.push(message));
  const change = (address: string): void => {
    const object = pod(address, { addresses: [ip(address)], version: 2 });
    memberships.receive('prod', scope('pods'), { type: 'changed', object });
  };
  memberships.setSelectors([podSelector({})]);
  memberships.receive('prod', scope('pods'), { type: 'listed', objects: [], version: 1 });
  messages.open();
  return { memberships, messages, sent, change };
}

test('one message has the changes that a read of a watch gives one after the other', async () => {
  const { messages, sent, change } = opened();
  messages.acknowledge();
  // The first message was sent long ago, so that the next one does not wait.
  vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 1_000);
  for (const address of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) {
    change(address);
    messages.changed();
  }
  await vi.waitFor(() => expect(sent.length).toBeGreaterThan(1));
  expect(sent.slice(1).map(({ owners }) => owners.length)).toEqual([3]);
});

test('the code after `flushed` runs before further changes are told', async () => {
  const { memberships, messages, sent, change } = opened();
  const first = messages.flushed().then(() => memberships.waiting);
  change('10.0.0.1');
  messages.acknowledge();
  const second = messages.flushed().then(() => memberships.waiting);
  change('10.0.0.2');
  messages.acknowledge();
  expect(await first).toBe(1);
  messages.acknowledge();
  expect(await second).toBe(0);
  expect(sent.map(({ owners }) => owners.length)).toEqual([0, 1, 1]);
});
