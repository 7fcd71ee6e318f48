import type { GroupOfText } from '#bus/bus-messages.js';
import type { PolicyChange } from '#contracts/policy/policy-record.js';
import type { PolicyWrite } from '#contracts/policy/policy-write.js';

const OPEN = 0x7b;
const CLOSE = 0x7d;

/**
 * Returns the group that a write changes, with its place in the text after the write. Returns undefined for
 * the write of a whole policy. The edit of a new group also contains punctuation before and after the group.
 */
export function writtenGroup({ put }: PolicyChange, { sourceGroup: id }: PolicyWrite): GroupOfText | undefined {
  if (id === undefined || put === undefined || !('edit' in put)) return undefined;
  const { from, text } = put.edit;
  return { id, from: from + Math.max(0, text.indexOf(OPEN)), to: from + text.lastIndexOf(CLOSE) + 1 };
}
