import type { Verdict } from '../../ui/parts.js';
import { ownerName } from './message.js';
import { countOf, type Row } from './row.js';

/**
 * A node of the traffic map: a source group or a destination. `filter`: the filter text that selects it, such
 * as `dst:10.2.0.2`.
 */
export type MapNode = {
  readonly key: string;
  readonly label: string;
  readonly filter: string | null;
  readonly count: number;
};

/**
 * A line of the traffic map: the traffic from a group to a destination with one class of ports and one
 * outcome.
 */
export type MapLine = {
  readonly from: string;
  readonly to: string;
  readonly ports: string;
  readonly outcome: Verdict;
  readonly count: number;
  readonly rate: number;
};

export type MapData = {
  readonly groups: readonly MapNode[];
  readonly destinations: readonly MapNode[];
  readonly lines: readonly MapLine[];
  /** The number of destinations that the last map node, "others", represents. */
  readonly others: number;
};

const OTHERS = 'others';

const CLASSES: readonly (readonly [name: string, ports: readonly number[]])[] = [
  ['web', [80, 443, 8080, 8443]],
  ['names', [53, 853, 5353]],
  ['shell', [22, 23]],
  ['mail', [25, 110, 143, 465, 587, 993]],
  ['files', [20, 21, 139, 445, 2049]],
  ['time', [123]],
  ['desktop', [3389, 5900]],
  ['video', [554, 1935]],
];

/** Returns a class for a protocol and port, so that the map has few lines: "web", "shell", "tcp 8883". */
export function portClass(row: Pick<Row, 'message' | 'subject'>): string {
  const { type, dst_port: port } = row.message;
  if (type === 'dns') return 'names';
  return CLASSES.find(([, ports]) => port != null && ports.includes(port))?.[0] ?? row.subject;
}

/**
 * Combines the rows into a map with at most `most` groups and `most` destinations: the most frequent ones.
 */
export function mapOf(rows: readonly Row[], most: number): MapData {
  const places = new Map(rows.map((row) => [row, destinationOf(row, false)]));
  if (new Set([...places.values()].map(({ key }) => key)).size > most)
    for (const row of rows) places.set(row, destinationOf(row, true));
  const groups = ranked(rows.map((row) => [groupOf(row), countOf(row)]));
  const all = ranked(rows.map((row) => [placeIn(places, row), countOf(row)]));
  const shownGroups = limited(groups, most);
  const shown = limited(all, most);
  const lines = new Map<string, MapLine>();
  for (const row of rows) {
    const from = shownGroups.keyOf(groupOf(row).key);
    const to = shown.keyOf(placeIn(places, row).key);
    const ports = portClass(row);
    const key = `${from} ${to} ${ports} ${row.outcome}`;
    const before = lines.get(key);
    const count = countOf(row) + (before?.count ?? 0);
    lines.set(key, { from, to, ports, outcome: row.outcome, count, rate: row.rate + (before?.rate ?? 0) });
  }
  const sorted = shownGroups.nodes.toSorted((one, other) => one.label.localeCompare(other.label));
  return {
    groups: sorted,
    destinations: besideGroups(shown.nodes, sorted, [...lines.values()]),
    lines: [...lines.values()],
    others: Math.max(0, all.length - shown.nodes.length + (all.length > most ? 1 : 0)),
  };
}

type Named = Omit<MapNode, 'count'>;

function placeIn(places: ReadonlyMap<Row, Named>, row: Row): Named {
  return places.get(row) ?? destinationOf(row, false);
}

/**
 * Returns the source group whose rule or default decided. If the default of the policy decided, returns the
 * groups that contain the source.
 */
function groupOf({ message }: Row): Named {
  const { source_group: group, source_groups: groups } = message;
  if (group != null) return { key: `group ${group}`, label: group, filter: group.toLowerCase() };
  if (groups == null) return { key: '-', label: 'no group decided', filter: null };
  if (groups.length === 0) return { key: 'in no group', label: 'in no group', filter: null };
  const label = groups.join(', ');
  return { key: `group ${label}`, label, filter: groups.length === 1 ? label.toLowerCase() : null };
}

function destinationOf({ message }: Row, isByNetwork: boolean): Named {
  const { type, dst, dst_names, http, sni } = message;
  if (type === 'dns' || dst == null) return { key: 'dns', label: 'lookups of names', filter: 'type:dns' };
  const name = http?.host ?? sni ?? dst_names?.[0];
  if (name != null) return { key: `name ${name}`, label: name, filter: `hostname:${name}` };
  const owner = ownerName(message.dst_owner);
  if (owner !== null) return { key: `owner ${owner}`, label: owner, filter: `dst:${dst}` };
  const place = isByNetwork ? networkOf(dst) : dst;
  return { key: `address ${place}`, label: place, filter: `dst:${place}` };
}

/** The network of an address on the map: /24 of IPv4, /64 of IPv6. */
function networkOf(address: string): string {
  const ofIpv4 = /^(\d+\.\d+\.\d+)\.\d+$/.exec(address)?.[1];
  if (ofIpv4 !== undefined) return `${ofIpv4}.0/24`;
  const [before = '', after] = address.split('::');
  const words = before === '' ? [] : before.split(':');
  const behind = after === undefined || after === '' ? [] : after.split(':');
  if (after !== undefined)
    words.push(...Array.from({ length: 8 - words.length - behind.length }, () => '0'), ...behind);
  const prefix = words
    .slice(0, 4)
    .join(':')
    .replace(/(^|:)0(:0)*$/, '');
  return `${prefix}::/64`;
}

function ranked(counted: readonly (readonly [Named, number])[]): MapNode[] {
  const nodes = new Map<string, MapNode>();
  for (const [node, count] of counted)
    nodes.set(node.key, { ...node, count: count + (nodes.get(node.key)?.count ?? 0) });
  return [...nodes.values()].sort((one, other) => other.count - one.count || one.key.localeCompare(other.key));
}

function limited(all: readonly MapNode[], most: number) {
  const nodes = all.length <= most ? all : all.slice(0, most - 1);
  const keys = new Set(nodes.map(({ key }) => key));
  const rest = all.slice(nodes.length);
  const others = { key: OTHERS, label: `and ${rest.length} others`, filter: null };
  const count = rest.reduce((sum, node) => sum + node.count, 0);
  return {
    nodes: rest.length === 0 ? nodes : [...nodes, { ...others, count }],
    keyOf: (key: string) => (keys.has(key) ? key : OTHERS),
  };
}

/**
 * Sorts destinations by the first group that sends to them, so that few lines cross. The node "others" is
 * last.
 */
function besideGroups(nodes: readonly MapNode[], groups: readonly MapNode[], lines: readonly MapLine[]): MapNode[] {
  const place = new Map(groups.map(({ key }, at) => [key, at]));
  const first = new Map<string, number>();
  for (const { from, to } of lines)
    first.set(to, Math.min(first.get(to) ?? Number.POSITIVE_INFINITY, place.get(from) ?? 0));
  const rank = ({ key }: MapNode) => (key === OTHERS ? Number.POSITIVE_INFINITY : (first.get(key) ?? 0));
  return nodes.toSorted((one, other) => rank(one) - rank(other) || one.label.localeCompare(other.label));
}
