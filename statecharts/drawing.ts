import type { AnyStateMachine, AnyStateNode } from 'xstate';
import type { ReadinessMeta } from './readiness.js';

type Edge = {
  readonly source: AnyStateNode;
  /** Undefined for a transition without a target, which leaves the state unchanged. */
  readonly target: AnyStateNode | undefined;
  readonly event: string;
  readonly guard: string;
  readonly actions: string;
};

/** Words that Mermaid does not accept as the name of a state. */
const RESERVED = new Set(['as', 'class', 'default', 'direction', 'end', 'hide', 'note', 'scale', 'state', 'style']);

/**
 * Returns the Markdown page about a statechart: a Mermaid diagram, a list of the states, and a list of the
 * transitions that the diagram does not show completely. docs/statecharts/README.md describes the list. The
 * page depends only on the chart, so that a test can compare it with the page in the repository.
 */
export function drawChart(machine: AnyStateMachine): string {
  const edges = nodesUnder(machine.root).flatMap(edgesFrom);
  const parallel = machine.root.type === 'parallel';
  const body = block(machine.root, edges, parallel ? 2 : 1);
  // Mermaid draws parallel regions side by side only inside a state. So put the regions of a parallel chart
  // into an outer state.
  const diagram = parallel ? [`  state ${machine.id} {`, ...body, '  }'] : body;
  const drawn = [`# ${machine.id}`, '', '```mermaid', 'stateDiagram-v2', ...diagram, '```', ''];
  const twins = twinsIn(machine.root, edges);
  return [...drawn, ...statesList(machine, twins), ...transitionsList(edges, twins)].join('\n');
}

function block(node: AnyStateNode, edges: readonly Edge[], depth: number): string[] {
  const pad = '  '.repeat(depth);
  const twins = twinsIn(node, edges);
  const [initial] = node.initial?.target ?? [];
  const start = initial === undefined ? [] : [`${pad}[*] --> ${idOf(initial)}`];
  const arrows = [...start, ...arrowsIn(node, edges).map((arrow) => pad + arrow)];
  const shown = new Set(arrows.flatMap((arrow) => arrow.trim().split(' ')));
  const inside = Object.values(node.states).map((child) => {
    const id = idOf(child);
    const heading = (more = ''): string =>
      `${pad}state ${id === child.key && more === '' ? id : `"${child.key}${more}" as ${id}`}`;
    // A state without children needs no declaration if an arrow shows it and its id is its key.
    if (Object.keys(child.states).length === 0) return id === child.key && shown.has(id) ? [] : [heading()];
    const twin = twins.get(child);
    if (twin !== undefined) return [heading(`, inside like ${twin.key}`)];
    return [`${heading()} {`, ...block(child, edges, depth + 1), `${pad}}`];
  });
  if (node.type === 'parallel') return inside.flatMap((lines, index) => (index === 0 ? lines : [`${pad}--`, ...lines]));
  return [...inside.flat(), ...arrows];
}

/**
 * Maps each composite state at any depth in `node` to its twin: the first sibling whose diagram is equal
 * except for the name of the state.
 */
function twinsIn(node: AnyStateNode, edges: readonly Edge[]): Map<AnyStateNode, AnyStateNode> {
  const twins = new Map<AnyStateNode, AnyStateNode>();
  const first = new Map<string, AnyStateNode>();
  for (const child of Object.values(node.states)) {
    if (Object.keys(child.states).length === 0) continue;
    const pattern = block(child, edges, 0).join('\n').replaceAll(child.key, '');
    const twin = first.get(pattern);
    if (twin === undefined) first.set(pattern, child);
    else twins.set(child, twin);
    for (const [inner, like] of twinsIn(child, edges)) twins.set(inner, like);
  }
  return twins;
}

/**
 * Returns whether the list already has an equal entry for this state: an outer state of `node` has a twin,
 * and the same inner state of the twin has an equal `textOf`, except for the name of the outer state.
 */
function isRepeated(
  node: AnyStateNode,
  twins: ReadonlyMap<AnyStateNode, AnyStateNode>,
  textOf: (of: AnyStateNode) => string | undefined,
): boolean {
  for (let own: AnyStateNode | undefined = node; own !== undefined; own = own.parent) {
    const twin = twins.get(own);
    if (twin === undefined) continue;
    let other: AnyStateNode | undefined = twin;
    for (const key of node.path.slice(own.path.length)) other = other?.states[key];
    const text = other && textOf(other);
    if (text?.replaceAll(twin.key, '') === textOf(node)?.replaceAll(own.key, '')) return true;
  }
  return false;
}

/**
 * Returns the arrows between the children of `node`. All transitions between the same two states share one
 * arrow, whose label joins their labels.
 */
function arrowsIn(node: AnyStateNode, edges: readonly Edge[]): string[] {
  const labels = new Map<string, Set<string>>();
  for (const { ends, label } of edges.flatMap((edge) => arrowIn(node, edge))) {
    labels.set(ends, (labels.get(ends) ?? new Set()).add(label));
  }
  return [...labels].map(([ends, of]) => {
    const label = [...of].filter((text) => text !== '').join(', ');
    return label === '' ? ends : `${ends} : ${label}`;
  });
}

/**
 * Returns the arrow of a transition if `node` is the innermost state that contains both its source and its
 * target. Mermaid cannot draw an arrow between inner states of two composite states, so the arrow connects
 * the composite states. An arrow from a state to itself is not possible either, so such a transition is only
 * in the list.
 */
function arrowIn(node: AnyStateNode, { source, target, event, guard }: Edge): { ends: string; label: string }[] {
  if (target === undefined) return [];
  const from = childOver(node, source);
  const to = childOver(node, target);
  if (from === undefined || to === undefined || from === to) return [];
  const words = [
    ...(from === source ? [] : [`${pathUnder(from, source)} ·`]),
    ...(event === '' ? [] : [event]),
    ...(guard === '' ? [] : [`[${guard}]`]),
    ...(to === target ? [] : [`→ ${pathUnder(to, target)}`]),
  ];
  // The label must not contain a colon or a semicolon, because a label ends there in Mermaid.
  return [{ ends: `${idOf(from)} --> ${idOf(to)}`, label: words.join(' ') }];
}

function childOver(ancestor: AnyStateNode, node: AnyStateNode): AnyStateNode | undefined {
  let current: AnyStateNode | undefined = node;
  while (current?.parent !== undefined && current.parent !== ancestor) current = current.parent;
  return current?.parent === ancestor ? current : undefined;
}

const pathUnder = (ancestor: AnyStateNode, node: AnyStateNode): string =>
  node.path.slice(ancestor.path.length).join('.');
const pathOf = (node: AnyStateNode): string => node.path.join('.') || node.key;

/** Returns the id of a state in the diagram: its key if no other state of the chart has this key. */
function idOf(node: AnyStateNode): string {
  const alike = nodesUnder(node.machine.root).filter(({ key }) => key === node.key);
  return alike.length === 1 && !RESERVED.has(node.key) ? node.key : [node.machine.id, ...node.path].join('_');
}

function nodesUnder(node: AnyStateNode): AnyStateNode[] {
  return [node, ...Object.values(node.states).flatMap(nodesUnder)];
}

type Transition = {
  readonly target: readonly AnyStateNode[] | undefined;
  readonly guard?: unknown;
  readonly actions: readonly unknown[];
};

function edgesFrom(source: AnyStateNode): Edge[] {
  const edge = (event: string) => (transition: Transition) => ({
    source,
    target: transition.target?.[0],
    event,
    guard: nameOf(transition.guard),
    actions: transition.actions.map(nameOf).join(', '),
  });
  const always = (source.always ?? []) as readonly Transition[];
  return [
    ...always.map(edge('')),
    ...[...source.transitions].flatMap(([event, transitions]) =>
      (transitions as readonly Transition[]).map(edge(eventName(event))),
    ),
  ];
}

function eventName(type: string): string {
  return type
    .replace(/^xstate\.done\.actor\.(.+)$/, '$1 done')
    .replace(/^xstate\.error\.actor\.(.+)$/, '$1 failed')
    .replace(/^xstate\.after\.([^.]+)\..*$/, 'after $1');
}

function nameOf(named: unknown): string {
  if (typeof named === 'string') return named;
  if (typeof named === 'object' && named !== null && 'type' in named) return String(named.type);
  return '';
}

/** Returns the list of the states that have a readiness tag, a detail or an invoked actor. */
function statesList(machine: AnyStateMachine, twins: ReadonlyMap<AnyStateNode, AnyStateNode>): string[] {
  const texts = new Map<AnyStateNode, string>(
    nodesUnder(machine.root).flatMap((node) => {
      const tags = node.tags.map((tag) => ` \`${tag}\``).join('');
      const detail = (node.meta as ReadinessMeta | undefined)?.detail;
      const invoked = node.invoke.map(({ id }) => `\`${id}\``).join(', ');
      const facts = [...(detail === undefined ? [] : [detail]), ...(invoked === '' ? [] : [`invokes ${invoked}`])];
      if (node === machine.root || (tags === '' && facts.length === 0)) return [];
      return [[node, `- \`${pathOf(node)}\`${tags}${facts.length === 0 ? '' : `: ${facts.join('; ')}`}`] as const];
    }),
  );
  const lines = [...texts].flatMap(([node, text]) => (isRepeated(node, twins, (of) => texts.get(of)) ? [] : [text]));
  return lines.length === 0 ? [] : [...lines, ''];
}

/**
 * Returns the list, by state, of the transitions that the diagram does not show completely: transitions with
 * actions, and transitions that stay in the state. States with equal transitions share an entry. Successive
 * events with the same effect share a line.
 */
function transitionsList(edges: readonly Edge[], twins: ReadonlyMap<AnyStateNode, AnyStateNode>): string[] {
  const isShown = ({ source, target, actions }: Edge): boolean =>
    actions === '' && target !== undefined && !isWithin(source, target) && !isWithin(target, source);
  const texts = new Map<AnyStateNode, string>();
  for (const [source, own] of groupedBy(edges, (edge) => edge.source)) {
    const listed = [...groupedBy(own, ({ event }) => event).values()]
      .filter((alternatives) => !alternatives.every(isShown))
      .flat();
    if (listed.length > 0) texts.set(source, joinedLines(listed).join('\n'));
  }
  const entries = new Map<string, string[]>();
  for (const [source, lines] of texts) {
    if (isRepeated(source, twins, (of) => texts.get(of))) continue;
    entries.set(lines, [...(entries.get(lines) ?? []), pathOf(source)]);
  }
  if (entries.size === 0) return [];
  return ['```text', ...[...entries].flatMap(([lines, sources]) => [sources.join(', '), lines]), '```', ''];
}

function groupedBy<T, K>(items: readonly T[], keyOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

/** Returns a line for each edge. Successive edges with different events and the same effect share a line. */
function joinedLines(edges: readonly Edge[]): string[] {
  const lines: { events: string[]; readonly effect: string }[] = [];
  for (const edge of edges) {
    const event = edge.event === '' ? 'always' : edge.event;
    const effect = effectOf(edge);
    const last = lines.at(-1);
    if (last?.effect === effect && !last.events.includes(event)) last.events.push(event);
    else lines.push({ events: [event], effect });
  }
  return lines.map(({ events, effect }) => `  ${events.join(', ')}${effect}`);
}

function effectOf({ source, target, guard, actions }: Edge): string {
  const to = target?.parent === source.parent ? target?.key : target && pathOf(target);
  return [
    ...(guard === '' ? [] : [` [${guard}]`]),
    ...(to === undefined ? [] : [` → ${to}`]),
    ...(actions === '' ? [] : [` / ${actions}`]),
  ].join('');
}

const isWithin = (node: AnyStateNode, ancestor: AnyStateNode): boolean =>
  node === ancestor || (node.parent !== undefined && isWithin(node.parent, ancestor));
