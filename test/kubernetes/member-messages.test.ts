import { afterEach, expect, test, vi } from 'vitest';
import type { MembersMessage } from '#contracts/kubernetes/kubernetes-source.js';
import { Memberships } from '#kubernetes/members/memberships.js';
import { Acknowledgement } from '#kubernetes/thread/acknowledgement.js';
import { MemberMessages } from '#kubernetes/thread/member-messages.js';
import { ObjectChanges } from '#kubernetes/thread/stored-objects.js';
import { eventually } from '#test/eventually.js';
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
  const acknowledgement = new Acknowledgement();
  const sources = { memberships, objects, integrationOf };
  const messages = new MemberMessages(sources, acknowledgement, (message) => sent.push(message));
  /** Acknowledges the last message, as the main thread does. Returns whether the sender waited for this. */
  const apply = (): boolean => {
    const isAwaited = acknowledgement.give();
    if (isAwaited) messages.acknowledge();
    return isAwaited;
  };
  const change = (address: string): void => {
    const object = pod(address, { addresses: [ip(address)], version: 2 });
    memberships.receive('prod', scope('pods'), { type: 'changed', object });
  };
  memberships.setSelectors([podSelector({})]);
  memberships.receive('prod', scope('pods'), { type: 'listed', objects: [], version: 1 });
  messages.open();
  return { memberships, messages, sent, change, apply };
}

test('one message to the node contains all changes of Kubernetes members that one read of a watch delivers', async () => {
  const { messages, sent, change, apply } = opened();
  apply();
  // The first message was sent long ago, so that the next one does not wait.
  vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 1_000);
  for (const address of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) {
    change(address);
    messages.changed();
  }
  await eventually(() => expect(sent.length).toBeGreaterThan(1));
  expect(sent.slice(1).map(({ owners }) => owners.length)).toEqual([3]);
});

test('after the changes of Kubernetes members are sent, code that waits for `flushed` runs before further changes are sent', async () => {
  const { memberships, messages, sent, change, apply } = opened();
  const first = messages.flushed().then(() => memberships.waiting);
  change('10.0.0.1');
  apply();
  const second = messages.flushed().then(() => memberships.waiting);
  change('10.0.0.2');
  apply();
  expect(await first).toBe(1);
  apply();
  expect(await second).toBe(0);
  expect(sent.map(({ owners }) => owners.length)).toEqual([0, 1, 1]);
});

test('a change of Kubernetes members that occurs between two parts of a message is sent after the last part', async () => {
  const { messages, sent, change, apply } = opened();
  apply();
  vi.spyOn(performance, 'now').mockReturnValue(performance.now() + 1_000);
  for (let pod = 0; pod < 501; pod++) change(`10.0.${pod >> 8}.${pod & 255}`);
  messages.changed();
  await eventually(() => expect(sent).toHaveLength(2));
  change('10.1.0.1');
  messages.changed();
  expect([apply(), apply()]).toEqual([true, true]);
  await eventually(() => expect(sent.map(({ owners }) => owners.length)).toEqual([0, 500, 1, 1]));
});
