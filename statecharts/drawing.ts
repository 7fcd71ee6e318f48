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

/**
 * Returns the Markdown page about a statechart: a Mermaid diagram, a table of the states, and a table of the
 * transitions. The page depends only on the chart, so that a test can compare it with the page in the
 * repository.
 */
export function drawChart(machine: AnyStateMachine): string {
  const edges = nodesUnder(machine.root).flatMap(edgesFrom);
  const parallel = machine.root.type === 'parallel';
  const body = block(machine.root, edges, parallel ? 2 : 1);
  // Mermaid draws parallel regions side by side only inside a state. So put the regions of a parallel chart
  // into an outer state.
  const diagram = parallel ? [`  state "${machine.id}" as ${machine.id} {`, ...body, '  }'] : body;
  const drawn = [`# ${machine.id}`, '', '```mermaid', 'stateDiagram-v2', ...diagram, '```', ''];
  return [...drawn, ...statesTable(machine), '', ...transitionsTable(edges), ''].join('\n');
}

function block(node: AnyStateNode, edges: readonly Edge[], depth: number): string[] {
  const pad = '  '.repeat(depth);
  const drawn = new Map<string, string>();
  const inside = Object.values(node.states).map((child) => {
    const heading = (more = ''): string => `${pad}state "${child.key}${more}" as ${idOf(child)}`;
    if (Object.keys(child.states).length === 0) return [heading()];
    const lines = block(child, edges, depth + 1);
    const pattern = lines.join('\n').replaceAll(child.key, '');
    const alike = drawn.get(pattern);
    if (alike !== undefined) return [heading(`, inside like ${alike}`)];
    drawn.set(pattern, child.key);
    return [`${heading()} {`, ...lines, `${pad}}`];
  });
  if (node.type === 'parallel') return inside.flatMap((lines, index) => (index === 0 ? lines : [`${pad}--`, ...lines]));
  const [initial] = node.initial?.target ?? [];
  const start = initial === undefined ? [] : [`${pad}[*] --> ${idOf(initial)}`];
  return [...inside.flat(), ...start, ...arrowsIn(node, edges).map((arrow) => pad + arrow)];
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
 * in the table.
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
const idOf = (node: AnyStateNode): string => [node.machine.id, ...node.path].join('_');

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

function statesTable(machine: AnyStateMachine): string[] {
  const rows = nodesUnder(machine.root)
    .slice(1)
    .map((node) => {
      const meta = node.meta as ReadinessMeta | undefined;
      const invoked = node.invoke.map(({ id }) => `\`${id}\``).join(', ');
      return `| \`${pathOf(node)}\` | ${node.tags.map((tag) => `\`${tag}\``).join(', ')} | ${meta?.detail ?? ''} | ${invoked} |`;
    });
  return ['| state | readiness tag | detail | invokes |', '|---|---|---|---|', ...rows];
}

function transitionsTable(edges: readonly Edge[]): string[] {
  const rows = edges.map(({ source, target, event, guard, actions }) => {
    const to = target === undefined ? '' : `\`${pathOf(target)}\``;
    return `| \`${pathOf(source)}\` | ${event === '' ? 'always' : event} | ${guard} | ${to} | ${actions} |`;
  });
  return ['| from | event | guard | to | actions |', '|---|---|---|---|---|', ...rows];
}
