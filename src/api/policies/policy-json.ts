import type { EnvelopeMode } from '#contracts/policy/policy-document.js';
import type { StoredPolicy } from '#contracts/policy/policy-record.js';

/**
 * Builds the JSON of a policy record with the stored policy text as member `policy`. The text can have tens
 * of megabytes, so it is copied and not parsed.
 */
export function withPolicy({ record, body }: StoredPolicy, extra: Readonly<Record<string, unknown>> = {}): Buffer {
  return withMember('policy', { ...record, ...extra }, body);
}

/**
 * Builds the JSON of a policy record with one source group as member `source_group`. An empty `body` becomes
 * null: this is the response to a dry run that removes the group.
 */
export function withGroup({ record, body }: StoredPolicy, extra: Readonly<Record<string, unknown>>): Buffer {
  return withMember('source_group', { ...record, ...extra }, body.length === 0 ? Buffer.from('null') : body);
}

function withMember(name: string, members: Readonly<Record<string, unknown>>, text: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${JSON.stringify(members).slice(0, -1)},"${name}":`), text, Buffer.from('}')]);
}

/**
 * Returns a stored policy in singleton form: without name, and with a mode in each source group (D5). The
 * mode of a policy that is stored with name and mode (the envelope) is inserted into each source group.
 */
export function singletonView({ record, body }: StoredPolicy): Uint8Array {
  return record.form === 'singleton' ? body : withGroupModes(body, record.mode);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const COLON = 0x3a;

/**
 * Inserts `mode` into each source group without parsing the JSON text. `body` must be valid JSON, with at
 * least one member in each source group.
 */
function withGroupModes(body: Uint8Array, mode: EnvelopeMode): Uint8Array {
  const member = Buffer.from(`"mode":${JSON.stringify(mode)},`);
  const parts: Uint8Array[] = [];
  let written = 0;
  let depth = 0;
  let lastString = '';
  let inGroups = false;
  for (let at = 0; at < body.length; at++) {
    switch (body[at]) {
      case QUOTE: {
        const end = endOfString(body, at);
        if (depth === 1) lastString = Buffer.from(body.subarray(at, end + 1)).toString();
        at = end;
        break;
      }
      case COLON:
        if (depth === 1) inGroups = JSON.parse(lastString) === 'source_groups';
        break;
      case OPEN_OBJECT:
        depth++;
        if (depth === 3 && inGroups) {
          parts.push(body.subarray(written, at + 1), member);
          written = at + 1;
        }
        break;
      case OPEN_ARRAY:
        depth++;
        break;
      case CLOSE_OBJECT:
      case CLOSE_ARRAY:
        depth--;
        break;
      default:
    }
  }
  parts.push(body.subarray(written));
  return Buffer.concat(parts);
}

function endOfString(body: Uint8Array, start: number): number {
  let at = start + 1;
  while (at < body.length && body[at] !== QUOTE) at += body[at] === BACKSLASH ? 2 : 1;
  return at;
}
