import type { PortSpec } from '#contracts/policy/policy-document.js';
import type { Range } from '#contracts/policy/policy-model.js';

export const MAX_PORT = 65_535;
/**
 * A regular expression for a port or port range as text. It also accepts numbers above 65535; `parsePorts`
 * rejects them.
 */
export const PORT_PATTERN = '^(0|[1-9][0-9]{0,4})(-(0|[1-9][0-9]{0,4}))?$';

export type ParsedPorts = { readonly range: Range } | { readonly fault: string };

/**
 * Parses a port, or a range `low-high` that includes both ends. For an invalid port, returns a sentence for
 * the user in `fault`.
 */
export function parsePorts(spec: PortSpec): ParsedPorts {
  if (typeof spec === 'number') {
    if (!Number.isInteger(spec) || spec < 0 || spec > MAX_PORT) return { fault: `a port is 0 to ${MAX_PORT}` };
    return { range: { low: spec + 0, high: spec + 0 } };
  }
  if (!PORTS.test(spec)) return { fault: 'write a port ("443") or a range ("8000-8100") in decimal' };
  const dash = spec.indexOf('-');
  const low = Number(dash === -1 ? spec : spec.slice(0, dash));
  const high = dash === -1 ? low : Number(spec.slice(dash + 1));
  if (low > MAX_PORT || high > MAX_PORT) return { fault: `a port is 0 to ${MAX_PORT}` };
  if (low > high) return { fault: `the range begins at ${low}, above its end ${high}` };
  return { range: { low, high } };
}

const PORTS = new RegExp(PORT_PATTERN);
