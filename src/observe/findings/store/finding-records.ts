import type { Finding, FindingDelta } from '#observe/findings/finding.js';
import { isObject, RecordKind, shaped } from '#store/records/record-kind.js';

/**
 * A change of a finding by a merge. `finding` is the finding after the merge, and `newCount` is the increase
 * of its count. `position` is the position of this change in the outbox.
 */
export type Change = { readonly position: number; readonly finding: Finding; readonly newCount: number };
/**
 * The positions of outbox entries: from `first` (inclusive) to `next` (exclusive). Within this range, single
 * entries may be missing.
 */
export type OutboxEnds = { readonly first: number; readonly next: number };

export type State = { readonly format: number; readonly count: number } & OutboxEnds;

const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isTextOrNull = (value: unknown): boolean => value === null || typeof value === 'string';
/**
 * Returns true if a stored value has the fields that the finding store and its indexes use. A finding of
 * another build may have additional fields.
 */
const isFinding = (value: unknown): boolean =>
  isObject(value) &&
  typeof value.type === 'string' &&
  [value.firstMs, value.lastMs, value.count].every(Number.isFinite) &&
  [value.source, value.destination, value.rule, value.sourceGroup, value.policyId].every(isTextOrNull);

/**
 * The kinds of records in the database of findings. They use no zod schemas, because the observer thread does
 * not load zod.
 */
export const FINDING_RECORDS = {
  finding: new RecordKind<FindingDelta>('finding/', shaped(isFinding, 'a finding')),
  state: new RecordKind<State>(
    'state',
    shaped(
      (value) => isObject(value) && [value.format, value.count, value.first, value.next].every(isCount),
      'the state of the findings',
    ),
  ),
  sink: new RecordKind<number>('sink/', shaped(isCount, 'a position')),
  outbox: new RecordKind<Omit<Change, 'position'>>(
    'outbox/',
    shaped((value) => isObject(value) && isFinding(value.finding) && isCount(value.newCount), 'a change of a finding'),
  ),
} as const;
