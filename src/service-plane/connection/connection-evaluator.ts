import type { MessagePort } from 'node:worker_threads';
import type { GrantedReply, GrantedRequest } from '#contracts/datapath/grant-messages.js';
import type { MemberList, MembershipChange } from '#contracts/kubernetes/membership.js';
import type { Address, Grants, Packet } from '#contracts/policy/policy-model.js';
import type { Inspection, InspectionImage } from '#contracts/service-plane/inspection-image.js';
import { grantsOf, type Step, StepFinder } from '#policy/evaluate/connection/connection-steps.js';
import { deciderKey } from '#policy/model/rules/rule-names.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { readPolicy } from '#service-plane/policy-image.js';

const GRANTS_MS = 1_000;

const EVERY_GRANT: Grants = { has: () => true };

/**
 * Finds the rules and defaults of the policy in force that can decide a connection. Some rules depend on the
 * Kubernetes object that owns the source address (D38a).
 */
export class ConnectionEvaluator {
  readonly #members = new MemberRecord();
  #inspection: Inspection | null = null;
  #steps: StepFinder | null = null;
  #grants: MessagePort | null = null;
  /**
   * Resolves when the grants can be read (`setGrantPort`), or when the time limit of `awaitGrants` has
   * passed.
   */
  #grantsCome: Promise<void> = Promise.resolve();
  #grantsCame: () => void = () => {};
  #isAwaiting = false;
  #lastId = 0;
  readonly #waiting = new Map<number, (patterns: readonly string[] | null) => void>();

  /** The generation of the policy in force; 0 before the first policy. */
  get generation(): number {
    return this.#inspection?.generation ?? 0;
  }

  use(image: InspectionImage): void {
    const { generation, scope, program, policy } = image;
    this.#members.policyChanged();
    this.#inspection =
      policy === null
        ? { generation, scope, program, policy }
        : { generation, scope, program, policy: readPolicy(policy, this.#inspection?.policy ?? null) };
    this.#find();
  }

  /** Changes which Kubernetes objects own source addresses. The next call of `stepsOf` uses the change. */
  changeMembers(change: MembershipChange): void {
    this.#members.change(change);
  }

  /**
   * Replaces all members (addresses that Kubernetes objects own). Before the first call, all deny rules and
   * no allow rules of groups with selectors apply to each source.
   */
  replaceMembers(list: MemberList): void {
    this.#members.replace(list);
    this.#find();
  }

  #find(): void {
    if (this.#inspection === null) return;
    this.#steps = new StepFinder(this.#inspection, this.#members.isKnown ? this.#members : null);
  }

  /**
   * Makes decisions that need grants (addresses learned for hostnames) wait for `setGrantPort`, for at most
   * `forMs` milliseconds.
   */
  awaitGrants(forMs: number): void {
    this.#isAwaiting = true;
    this.#grantsCome = new Promise((resolve) => {
      const late = setTimeout(resolve, forMs).unref();
      this.#grantsCame = () => {
        clearTimeout(late);
        resolve();
      };
    });
  }

  setGrantPort(port: MessagePort): void {
    this.#grants?.close();
    this.#grants = port;
    this.#grantsCame();
    port.on('message', ({ id, patterns }: GrantedReply) => this.#waiting.get(id)?.(patterns));
    port.unref();
  }

  /**
   * Returns the rules and defaults that can decide a connection, in the order of evaluation. Returns null
   * before the first policy, and if grants are needed but `setGrantPort` was not called in time. Requests the
   * grants of the destination address only if the result depends on them. With `expiredToo`, an expired grant
   * counts until its removal (D12). If the grants are unavailable, a deny rule by hostname matches, and an
   * allow rule by hostname does not match (D19a).
   */
  async stepsOf(flow: Packet, expiredToo = false): Promise<readonly Step[] | null> {
    const finder = this.#steps;
    if (finder === null) return null;
    let isNamed = false;
    const asked: Grants = {
      has: () => {
        isNamed = true;
        return false;
      },
    };
    const steps = finder.stepsOf(flow, asked);
    if (!isNamed || isSame(steps, finder.stepsOf(flow, EVERY_GRANT))) return steps;
    await this.#grantsCome;
    // `setGrantPort` was not called in time: return null, as before the first policy.
    if (this.#isAwaiting && this.#grants === null) return null;
    const patterns = await this.#granted(flow.destination, expiredToo);
    return finder.stepsOf(flow, patterns === null ? null : grantsOf(flow.destination, new Set(patterns)));
  }

  /**
   * Returns the hostname patterns that are granted to `address`; null if the datapath thread cannot read the
   * grants, or does not respond in time.
   */
  async #granted(address: Address, expiredToo: boolean): Promise<readonly string[] | null> {
    const port = this.#grants;
    if (port === null) return null;
    const id = ++this.#lastId;
    return new Promise((resolve) => {
      const late = setTimeout(() => finish(null), GRANTS_MS);
      const finish = (patterns: readonly string[] | null): void => {
        clearTimeout(late);
        this.#waiting.delete(id);
        resolve(patterns);
      };
      this.#waiting.set(id, finish);
      port.postMessage({ id, address, expiredToo } satisfies GrantedRequest);
    });
  }
}

function isSame(some: readonly Step[], others: readonly Step[]): boolean {
  const keys = (steps: readonly Step[]): string => JSON.stringify(steps.map(({ decider }) => deciderKey(decider)));
  return keys(some) === keys(others);
}
