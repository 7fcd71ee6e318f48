import { bitsOf } from '#addresses/ip-address.js';
import type { Prefix } from '#contracts/policy/policy-model.js';
import type { CompleteScope, OwningObject } from '#kubernetes/members/integration-objects.js';
import type { NamespaceRecord, NodeRecord, PodRecord, ResourceName } from '#kubernetes/watch/objects.js';

/** Decides whether records of the store have the shape that this version of Weir writes. */

type Check = (value: unknown) => boolean;
/** A check for each field. TypeScript reports an error for a field without a check. */
type Checks<T> = { readonly [Field in keyof Required<T>]: Check };

const isText: Check = (value) => typeof value === 'string';
const isNumber: Check = (value) => Number.isFinite(value);
const isFlag: Check = (value) => typeof value === 'boolean';
const isAddress: Check = (value) =>
  typeof value === 'bigint'
    ? BigInt.asUintN(128, value) === value
    : Number.isInteger(value) && (value as number) >>> 0 === value;
const isNullOr =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);
const listOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.every(check);

const isPrefix: Check = (value) => {
  if (!has(value, { address: isAddress, length: Number.isInteger })) return false;
  const { address, length } = value as Prefix;
  return length >= 0 && length <= bitsOf(address);
};
const isOwned: Check = (value) => {
  const [address, ...times] = listOf(() => true)(value) ? (value as unknown[]) : [];
  return isAddress(address) && times.length === 2 && times.every(isNumber);
};

const COMMON = {
  uid: isText,
  name: isText,
  labels: listOf(isText),
  version: isNumber,
  started: isNumber,
  undecided: (value: unknown) => value === undefined || value === true,
};
const POD: Checks<Omit<PodRecord, 'resource'>> = {
  ...COMMON,
  namespace: isText,
  serviceAccount: isText,
  nodeName: isText,
  addresses: listOf(isAddress),
  hostNetwork: isFlag,
  phase: isText,
  deleting: isFlag,
  running: isFlag,
};
const NODE: Checks<Omit<NodeRecord, 'resource'>> = {
  ...COMMON,
  internal: listOf(isAddress),
  external: listOf(isAddress),
  podNetworks: listOf(isPrefix),
};
const NAMESPACE: Checks<Omit<NamespaceRecord, 'resource'>> = COMMON;
const CHECKS = new Map<unknown, Readonly<Record<string, Check>>>(
  Object.entries({ pods: POD, nodes: NODE, namespaces: NAMESPACE } satisfies Record<ResourceName, unknown>),
);
const SCOPE: Checks<CompleteScope['scope']> = {
  resource: (value) => CHECKS.has(value),
  namespace: isNullOr(isText),
  node: isNullOr(isText),
};

export function isOwningObject(value: unknown): value is OwningObject {
  return has(value, { object: isObject, owned: listOf(isOwned) });
}

export function areCompleteScopes(value: unknown): value is readonly CompleteScope[] {
  return listOf((scope) => has(scope, { scope: (of) => has(of, SCOPE), version: isNumber }))(value);
}

function isObject(value: unknown): boolean {
  const checks = CHECKS.get((value as { readonly resource?: unknown } | null)?.resource);
  return checks !== undefined && has(value, checks);
}

/** Whether a value is an object whose fields meet these checks. */
function has(value: unknown, checks: Readonly<Record<string, Check>>): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const fields = value as Readonly<Record<string, unknown>>;
  return Object.entries(checks).every(([name, check]) => check(fields[name]));
}
