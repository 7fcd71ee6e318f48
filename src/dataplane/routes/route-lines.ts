import { LINE_BYTES, LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import type { Address, Prefix } from '#contracts/policy/policy-model.js';

/** A route for one prefix, from the routing table `main` or `local`. */
export type Route<A extends Address = number> = Prefix<A> & {
  /**
   * True for a route of the routing table `local`. The kernel searches that table first, so its routes take
   * precedence over more specific routes of other tables.
   */
  readonly local: boolean;
  /** Index of the outgoing interface. 0 if the route has several outgoing interfaces or is not unicast. */
  readonly ifindex: number;
};

/**
 * The layout of the map `routes`, in cache lines, as in `bpf/ipv4/copied_routes.h`: a header, a root, one
 * middle line for each of the 16 keys of the root, and the bottom lines.
 */
const FAN = 16;
const BOTTOM_KEYS = LINE_WORDS / 2;
const BOTTOM = 1 + 1 + FAN;
export const ROUTE_LINES = BOTTOM + FAN * FAN;
export const ROUTES_BYTES = ROUTE_LINES * LINE_BYTES;
/** Offsets of the fields of the header line, in 32-bit words. */
export const ROUTES = { hold: 0, made: 1, seen: 2 } as const;
const MAX_INTERVALS = FAN * FAN * BOTTOM_KEYS;
const NO_KEY = 0xffff_ffff;

type Intervals = { readonly starts: number[]; readonly values: number[] };

/** Returns the words after the header; null if the bottom lines have no room for all intervals. */
export function routeLines(routes: readonly Route[]): Uint32Array | null {
  const { starts, values } = intervalsOf(routes);
  if (starts.length > MAX_INTERVALS) return null;
  const words = new Uint32Array((ROUTE_LINES - 1) * LINE_WORDS);
  const bottom = (BOTTOM - 1) * LINE_WORDS;
  for (let line = 0; line < FAN * FAN; line++) {
    for (let key = 0; key < BOTTOM_KEYS; key++) {
      const from = line * BOTTOM_KEYS + key;
      words[bottom + line * LINE_WORDS + key] = starts[from] ?? NO_KEY;
      words[bottom + line * LINE_WORDS + BOTTOM_KEYS + key] = values[from] ?? 0;
    }
    // A middle line contains the first key of each of its bottom lines. The root contains the first key of
    // each middle line.
    words[LINE_WORDS + line] = starts[line * BOTTOM_KEYS] ?? NO_KEY;
    if (line % FAN === 0) words[line / FAN] = starts[line * BOTTOM_KEYS] ?? NO_KEY;
  }
  return words;
}

/**
 * Converts routes to intervals of destination addresses. The value of an interval is the outgoing interface
 * of its longest matching prefix; 0 if the interface is not known.
 */
export function intervalsOf(routes: readonly Route[]): Intervals {
  const starts = [0];
  const values = [0];
  const from = (start: number, value: number): void => {
    if (start > NO_KEY) return;
    if (starts.at(-1) === start) values[values.length - 1] = value;
    else if (values.at(-1) !== value) {
      starts.push(start);
      values.push(value);
    }
  };
  const open: { readonly end: number; readonly ifindex: number; readonly local: boolean }[] = [];
  const closeUntil = (start: number): void => {
    for (let last = open.at(-1); last !== undefined && last.end < start; last = open.at(-1)) {
      open.pop();
      from(last.end + 1, open.at(-1)?.ifindex ?? 0);
    }
  };
  for (const { address, length, ifindex, local } of distinct(routes)) {
    closeUntil(address);
    const hidden = local || open.at(-1)?.local === true;
    const route = { end: address + 2 ** (32 - length) - 1, ifindex: hidden ? 0 : ifindex, local: hidden };
    open.push(route);
    from(address, route.ifindex);
  }
  closeUntil(2 ** 32);
  return { starts, values };
}

/**
 * Returns one route for each prefix, ordered so that a prefix comes before the more specific prefixes inside
 * it. If several routes have the same prefix, the kernel chooses by more than the address. Their interface
 * is then 0 (not known).
 */
function distinct(routes: readonly Route[]): Route[] {
  const byPrefix = new Map<string, Route>();
  for (const route of routes) {
    const prefix = `${route.address}/${route.length}`;
    const other = byPrefix.get(prefix);
    byPrefix.set(prefix, other === undefined ? route : { ...route, ifindex: 0, local: route.local || other.local });
  }
  return [...byPrefix.values()].sort((a, b) => a.address - b.address || a.length - b.length);
}
