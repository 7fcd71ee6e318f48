import type { Atom } from '#analysis/engine/conditions.js';
import type { FlowCondition } from '#contracts/analysis/flow-region.js';
import { sourceOf } from '#policy/model/sources/selector.js';

export function flowCondition(atom: Atom): FlowCondition {
  switch (atom.kind) {
    case 'name':
      return { kind: 'hostname', pattern: atom.pattern.text };
    case 'deny_only':
      return { kind: 'deny_only' };
    case 'tls':
      return { kind: 'tls', state: atom.state, tls: atom.tls };
    default:
      return { kind: atom.kind, selector: sourceOf(atom.key) };
  }
}
