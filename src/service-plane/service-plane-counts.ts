import type { Verdict } from '#contracts/policy/policy-model.js';
import type { ThreadStats } from '#service-plane/thread/service-plane-messages.js';
import type { RefusedReason } from './refused-reason.js';

/** The counters of one thread of the TLS and HTTP inspection (service plane). */
export class Counts {
  intercepted = 0;
  /** Number of suspended connections (denied by a later policy) now. */
  suspended = 0;
  readonly #connections = { allow: 0, deny: 0, audit: 0, redirect: 0 };
  readonly #requests = { allow: 0, deny: 0, audit: 0, redirect: 0 };
  readonly #responses = { deny: 0, audit: 0 };
  readonly #refused = new Map<RefusedReason, number>();

  connection(verdict: Verdict): void {
    this.#connections[verdict]++;
  }

  request(verdict: Verdict): void {
    this.#requests[verdict]++;
  }

  /** Counts a response that violated the rule that had allowed its request, by the resulting verdict. */
  response(verdict: 'deny' | 'audit'): void {
    this.#responses[verdict]++;
  }

  refuse(reason: RefusedReason): void {
    this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + 1);
  }

  stats(connections: number, upstreamCaFault: string | null): ThreadStats {
    const { allow, deny, audit } = this.#connections;
    return {
      allow,
      deny,
      audit,
      intercepted: this.intercepted,
      requestsAllow: this.#requests.allow,
      requestsDeny: this.#requests.deny,
      requestsAudit: this.#requests.audit,
      responsesDeny: this.#responses.deny,
      responsesAudit: this.#responses.audit,
      connections,
      suspended: this.suspended,
      refused: Object.fromEntries(this.#refused),
      upstreamCaFault,
    };
  }
}

/** Returns the sum of the counters of several threads. */
export function sumOf(all: readonly ThreadStats[]): ThreadStats {
  const sum = (of: (stats: ThreadStats) => number): number => all.reduce((total, stats) => total + of(stats), 0);
  const refused: Record<string, number> = {};
  for (const stats of all) {
    for (const [reason, count] of Object.entries(stats.refused)) refused[reason] = (refused[reason] ?? 0) + count;
  }
  return {
    allow: sum(({ allow }) => allow),
    deny: sum(({ deny }) => deny),
    audit: sum(({ audit }) => audit),
    intercepted: sum(({ intercepted }) => intercepted),
    requestsAllow: sum(({ requestsAllow }) => requestsAllow),
    requestsDeny: sum(({ requestsDeny }) => requestsDeny),
    requestsAudit: sum(({ requestsAudit }) => requestsAudit),
    responsesDeny: sum(({ responsesDeny }) => responsesDeny),
    responsesAudit: sum(({ responsesAudit }) => responsesAudit),
    connections: sum(({ connections }) => connections),
    suspended: sum(({ suspended }) => suspended),
    refused,
    upstreamCaFault: all.find((stats) => stats.upstreamCaFault !== null)?.upstreamCaFault ?? null,
  };
}
