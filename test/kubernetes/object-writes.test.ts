import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import { ObjectWrites } from '#kubernetes/distribution/object-writes.js';

let written: string[];
let isFailing: boolean;
let reports: string[];
let writes: ObjectWrites;

const object = (key: string, value: string | null = 'x'): StoredObject => ({ key, value });

beforeEach(() => {
  vi.useFakeTimers();
  written = [];
  reports = [];
  isFailing = false;
  const store = async (objects: readonly StoredObject[]) => {
    if (isFailing) throw new Error('the disk is full');
    written.push(objects.map(({ key, value }) => `${key}=${value}`).join(' '));
  };
  writes = new ObjectWrites(store, (message) => reports.push(message));
});

afterEach(() => {
  vi.useRealTimers();
});

it('the store of Kubernetes objects writes a single change at once, and the changes of the next 250 ms together', async () => {
  await writes.add([object('a')]);
  await vi.advanceTimersByTimeAsync(0);
  expect(written).toEqual(['a=x']);
  await vi.advanceTimersByTimeAsync(100);
  await writes.add([object('a', 'y'), object('b')]);
  await vi.advanceTimersByTimeAsync(100);
  await writes.add([object('a', null)]);
  await vi.advanceTimersByTimeAsync(49);
  expect(written).toEqual(['a=x']);
  await vi.advanceTimersByTimeAsync(2);
  expect(written).toEqual(['a=x', 'a=null b=x']);
  await vi.advanceTimersByTimeAsync(200);
  await writes.add([object('c')]);
  await vi.advanceTimersByTimeAsync(45);
  expect(written).toEqual(['a=x', 'a=null b=x']);
  await vi.advanceTimersByTimeAsync(10);
  expect(written).toEqual(['a=x', 'a=null b=x', 'c=x']);
  await vi.advanceTimersByTimeAsync(250);
  await writes.add([object('d')]);
  await vi.advanceTimersByTimeAsync(0);
  expect(written.at(-1)).toBe('d=x');
});

it('the store of Kubernetes objects has written 500 objects of one message, and the next part of a list, when `add` resolves', async () => {
  await writes.add([object('a')]);
  const many = Array.from({ length: 500 }, (_, index) => object(`${index}`));
  await writes.add(many);
  await writes.add([object('complete')]);
  await writes.add([object('next')]);
  expect(written.map((each) => each.split(' ').length)).toEqual([1, 500, 1]);
});

it('the store of Kubernetes objects writes the objects of a failed write with the next write, and reports the failure', async () => {
  isFailing = true;
  await writes.add([object('a', null)]);
  await vi.advanceTimersByTimeAsync(0);
  expect(reports).toEqual(['the members of selectors cannot be stored']);
  isFailing = false;
  await vi.advanceTimersByTimeAsync(1_000);
  await writes.add([object('b')]);
  await writes.flush();
  expect(written).toEqual(['a=null b=x']);
});

it('the store of Kubernetes objects writes no object twice, and writes nothing without a change', async () => {
  await writes.add([]);
  await writes.flush();
  await writes.add([object('a')]);
  await writes.flush();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written).toEqual(['a=x']);
});

it('the store of Kubernetes objects keeps a change that arrives during a write, and writes it after that write', async () => {
  const ends: (() => void)[] = [];
  const store = (objects: readonly StoredObject[]) => {
    written.push(objects.map(({ key, value }) => `${key}=${value}`).join(' '));
    return new Promise<void>((resolve) => ends.push(resolve));
  };
  const slow = new ObjectWrites(store, () => {});
  await slow.add([object('a')]);
  await vi.advanceTimersByTimeAsync(0);
  await slow.add([object('a', null)]);
  let isFlushed = false;
  const flushed = slow.flush().then(() => {
    isFlushed = true;
  });
  await vi.advanceTimersByTimeAsync(1_000);
  expect(written).toEqual(['a=x']);
  ends[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(written).toEqual(['a=x', 'a=null']);
  expect(isFlushed).toBe(false);
  ends[1]?.();
  await flushed;
});
