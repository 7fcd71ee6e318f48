import { isDeepStrictEqual } from 'node:util';
import type { z } from 'zod';
import { type Config, configOf } from '#config/config.js';
import type { DisclosedConfig } from '#config/disclosure.js';
import type { ReadConfig } from '#config/load.js';
import { configSchema, type ParsedConfig } from '#config/schema/config-schema.js';
import { members } from '#config/schema/schema-tree.js';
import { type ReloadedBy, reloadedBy } from './reload-fields.js';

type Keys = readonly string[];

/**
 * The difference between two configurations. Each path of keys is a field, or a section that only one of
 * the two has.
 */
type Difference = {
  readonly changed: readonly { readonly keys: Keys; readonly by: ReloadedBy }[];
  readonly unchanged: readonly Keys[];
};

function differenceOf(running: ParsedConfig, next: ParsedConfig): Difference {
  const changed: { keys: Keys; by: ReloadedBy }[] = [];
  const unchanged: Keys[] = [];
  const walk = (schema: z.core.$ZodType, keys: Keys, before: unknown, after: unknown): void => {
    const inner = members(schema);
    if (inner.length > 0 && isSection(before) && isSection(after)) {
      for (const [key, member] of inner) walk(member, [...keys, key], before[key], after[key]);
    } else if (!isDeepStrictEqual(before ?? null, after ?? null)) {
      changed.push({ keys, by: inner.length > 0 ? 'restart' : reloadedBy(keys.join('.')) });
    } else if (inner.length === 0) unchanged.push(keys);
  };
  walk(configSchema, [], running, next);
  return { changed, unchanged };
}

/**
 * The configuration that is in force. A field that needs a restart keeps its old value until the restart, so
 * that each reload reports the field again.
 */
export class RunningConfig {
  #running: ReadConfig;
  #next: ReadConfig;
  #file: Config;

  /** Creates the object with the present configuration. `reread` reads and validates the file again. */
  constructor(
    start: ReadConfig,
    private readonly reread: () => ReadConfig,
  ) {
    this.#running = start;
    this.#next = start;
    this.#file = start.config;
  }

  get config(): Config {
    return this.#running.config;
  }

  /** The running configuration, with the reloadable changes of the file that `read` has read last. */
  get next(): Config {
    return this.#next.config;
  }

  /** The configuration that `read` returned last. The node would start with it. */
  get file(): Config {
    return this.#file;
  }

  get disclosed(): DisclosedConfig {
    return this.#running.disclosed;
  }

  /** Reads the file. Throws a `ConfigError` that contains all problems of the file. */
  read(): Difference {
    const read = this.reread();
    this.#file = read.config;
    const difference = differenceOf(this.#running.parsed, read.parsed);
    const parsed = structuredClone(this.#running.parsed);
    const disclosed = { ...this.#running.disclosed };
    for (const { keys, by } of difference.changed) {
      if (by === 'restart') continue;
      put(parsed, keys, read.parsed);
      const shown = read.disclosed[keys.join('.')];
      if (shown !== undefined) disclosed[keys.join('.')] = shown;
    }
    this.#next = { config: configOf(parsed), disclosed, parsed };
    return difference;
  }

  /** Makes the result of the last `read` the running configuration. */
  commit(): void {
    this.#running = this.#next;
  }
}

const isSection = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

/** Copies the value at a path of keys. Both configurations have all sections on the path. */
function put(into: ParsedConfig, keys: Keys, from: ParsedConfig): void {
  const at = (root: unknown): Record<string, unknown> =>
    keys
      .slice(0, -1)
      .reduce((section, key) => section[key] as Record<string, unknown>, root as Record<string, unknown>);
  const last = keys.at(-1) ?? '';
  at(into)[last] = structuredClone(at(from)[last]);
}
