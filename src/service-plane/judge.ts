import { deserialize } from 'node:v8';
import type { MessagePort } from 'node:worker_threads';
import type { GrantedAnswer, GrantedRequest } from '#policy/grant-port.js';
import { grantsOf, type Inspection, type InspectionImage, type Step, StepFinder } from '#policy/inspection.js';
import type { Grants, Packet, Policy } from '#policy/model.js';

const GRANTS_MS = 1_000;

/** Finds what decides connections, by the policy in force. */
export class Judge {
  #inspection: Inspection | null = null;
  #steps: StepFinder | null = null;
  #grants: MessagePort | null = null;
  #lastId = 0;
  readonly #waiting = new Map<number, (patterns: readonly string[]) => void>();

  /** 0 before the first. */
  get generation(): number {
    return this.#inspection?.generation ?? 0;
  }

  use(image: InspectionImage): void {
    const policy = image.policy === null ? null : (deserialize(image.policy) as Policy);
    this.#inspection = { generation: image.generation, program: image.program, policy };
    this.#steps = new StepFinder(this.#inspection);
  }

  grantsBy(port: MessagePort): void {
    this.#grants?.close();
    this.#grants = port;
    port.on('message', ({ id, patterns }: GrantedAnswer) => this.#waiting.get(id)?.(patterns));
    port.unref();
  }

  /** Null before a policy is in force. What an address is granted for is asked only where a rule is about names. */
  async stepsOf(flow: Packet): Promise<readonly Step[] | null> {
    const finder = this.#steps;
    if (finder === null) return null;
    let isNamed = false;
    const unknown: Grants = {
      has: () => {
        isNamed = true;
        return false;
      },
    };
    const steps = finder.stepsOf(flow, unknown);
    if (!isNamed) return steps;
    return finder.stepsOf(flow, grantsOf(flow.destination, new Set(await this.#granted(flow.destination))));
  }

  /** Nothing, where nobody answers. */
  #granted(address: number): Promise<readonly string[]> {
    const port = this.#grants;
    if (port === null) return Promise.resolve([]);
    const id = ++this.#lastId;
    return new Promise((resolve) => {
      const late = setTimeout(() => finish([]), GRANTS_MS);
      const finish = (patterns: readonly string[]): void => {
        clearTimeout(late);
        this.#waiting.delete(id);
        resolve(patterns);
      };
      this.#waiting.set(id, finish);
      port.postMessage({ id, address } satisfies GrantedRequest);
    });
  }
}
