import { afterEach } from 'vitest';

const closers: (() => Promise<void>)[] = [];

/** Registers a function that closes a resource after the current test. */
export function opened(close: () => Promise<void>): void {
  closers.push(close);
}

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});
