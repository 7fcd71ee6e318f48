import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bindPlainly } from '#service-plane/intercept/plain-bind.js';

const before = Object.getOwnPropertyDescriptor(AsyncResource.prototype, 'bind') ?? {};
beforeAll(bindPlainly);
afterAll(() => Object.defineProperty(AsyncResource.prototype, 'bind', before));

test('what is bound runs where its resource was made, with what it is called by', () => {
  const storage = new AsyncLocalStorage<string>();
  const resource = storage.run('there', () => new AsyncResource('TEST'));
  function told(this: unknown, ...args: readonly string[]): readonly unknown[] {
    return [storage.getStore(), this, ...args];
  }
  const bound = resource.bind(told);
  const self = {};
  expect(storage.run('here', () => Reflect.apply(bound, self, ['a', 'b']))).toEqual(['there', self, 'a', 'b']);
  expect(AsyncResource.bind(told, 'TEST', self)('c')).toEqual([undefined, self, 'c']);
});

test('what is bound has no property that is deprecated', () => {
  expect(Object.getOwnPropertyNames(new AsyncResource('TEST').bind(() => {}))).not.toContain('asyncResource');
});
