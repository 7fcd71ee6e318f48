import type { Style } from '#cli/output/style.js';
import {
  elementsOf,
  type FieldChange,
  type GroupChange,
  type ItemChange,
  type PolicyDifference,
} from './difference.js';

/** Formats the difference of two policies as text, with one line for each change. */
export function differenceText({ fields, groups }: PolicyDifference, style: Style): string {
  const lines = [
    ...fields.map((field) => fieldLine(field, style)),
    ...groups.flatMap((group) => groupLines(group, style)),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function groupLines(group: GroupChange, style: Style): string[] {
  return [
    itemLine('group', group, style),
    ...group.fields.map((field) => `    ${fieldLine(field, style)}`),
    ...group.rules.flatMap((rule) => [
      `  ${itemLine('rule', rule, style)}`,
      ...rule.fields.map((field) => `      ${fieldLine(field, style)}`),
    ]),
  ];
}

function itemLine(kind: string, { id, change, moved }: ItemChange, style: Style): string {
  switch (change) {
    case 'added':
      return style.good(`+ ${kind} ${id}`);
    case 'removed':
      return style.bad(`- ${kind} ${id}`);
    case 'changed':
      return `${style.warn(`~ ${kind} ${id}`)}${moved === null ? '' : ` moved from place ${moved.from} to ${moved.to}`}`;
  }
}

function fieldLine({ field, from, to }: FieldChange, style: Style): string {
  if (!Array.isArray(from) && !Array.isArray(to)) return `${field}: ${shown(from)} → ${shown(to)}`;
  const [old, now] = [elementsOf(from), elementsOf(to)];
  const gone = [...old].filter(([key]) => !now.has(key)).map(([, value]) => style.bad(`-${shown(value)}`));
  const come = [...now].filter(([key]) => !old.has(key)).map(([, value]) => style.good(`+${shown(value)}`));
  return `${field}: ${[...gone, ...come].join(' ')}`;
}

function shown(value: unknown): string {
  if (value === undefined) return '(none)';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
