import { describe, expect, it, onTestFinished } from 'vitest';
import { type ListBounds, REFLECTOR_TIMES, reflect } from '#kubernetes/watch/reflector.js';
import { Recording } from '#test/kubernetes/recording.js';
import { scope } from '#test/kubernetes/sample.js';
import { podOf, ScriptedServer, sendList } from '#test/kubernetes/scripted-server.js';

const TIMES = { ...REFLECTOR_TIMES, firstBackoffMs: 1, mostBackoffMs: 20 };

const keep = (value: unknown) => ({ uid: (value as ReturnType<typeof podOf>).metadata.uid });

/** Starts a reflector of a server whose list never ends. Each page has `objects` objects. */
async function endless(objects: number, bounds: ListBounds): Promise<Recording<{ readonly uid: string }>> {
  const page = Array.from({ length: objects }, (_, index) => podOf(`p${index}`, 3));
  const server = await ScriptedServer.start((_, response) => sendList(response, 7, page, 'next'));
  const recording = new Recording(reflect({ server: server.api, scope: scope('pods'), keep, times: TIMES, bounds }));
  onTestFinished(() => recording.end());
  return recording;
}

describe('bounds of a reflector', () => {
  it.each([
    ['objects', 10, { objects: 100, characters: 1e9 }, 'the list has more than 100 objects'],
    ['pages without objects', 0, { objects: 100, characters: 1e9 }, 'the list has more than 100 objects'],
    ['characters', 10, { objects: 1e9, characters: 20_000 }, 'the list has more than 20000 characters'],
  ])(
    'a Kubernetes reflector rejects a list with too many %s, so that the former objects stay in force',
    async (_, objects, bounds, reason) => {
      const recording = await endless(objects, bounds);
      expect((await recording.untilPhase('backing_off')).reason).toBe(reason);
      expect(recording.lists).toBe(0);
    },
  );

  it('a Kubernetes reflector ends the wait for credentials at its time limit', async () => {
    const server = { url: 'https://127.0.0.1:1', credentials: () => new Promise<never>(() => {}) };
    const times = { ...TIMES, headersMs: 50 };
    const recording = new Recording(reflect({ server, scope: scope('pods'), keep, times }));
    onTestFinished(() => recording.end());
    expect((await recording.untilPhase('backing_off')).reason).toBe('the credentials were not read in 0.05 s');
  });
});
