import type { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';
import type { InspectionImage } from '#policy/inspection.js';
import type { Packet } from '#policy/model.js';
import type { SeenConnection, SeenConnections } from '#policy/seen-connection.js';
import type { InterceptCa } from './ca/intercept-ca.js';
import { Connection } from './connection.js';
import { Counts } from './counts.js';
import { Interceptor } from './interceptor.js';
import { Judge } from './judge.js';
import { Listener } from './listener.js';
import type { ServicePlaneOptions } from './options.js';
import type { Plane } from './plane.js';
import type { ServicePlaneStats } from './service-plane.js';
import type { Splices } from './splice.js';

/** What is seen between two takes; of more only the number is known. */
const SEEN = 8_192;

/** The service plane of one thread, in the thread that made it. */
export class LocalServicePlane {
  readonly #plane: Plane;
  readonly #listener: Listener;
  readonly #connections = new Set<Connection>();
  /** Whether what is allowed is of use to anybody. */
  allowedWanted = false;
  #seen: SeenConnection[] = [];
  #lost = 0;

  constructor(
    private readonly options: ServicePlaneOptions,
    ticketKeys: Buffer,
    splices: Splices,
  ) {
    const judge = new Judge();
    const counts = new Counts();
    const see: Plane['see'] = (seen) => this.#see(seen);
    this.#plane = {
      options,
      judge,
      counts,
      see,
      splices,
      interceptor: new Interceptor({ options, judge, counts, see }, ticketKeys),
    };
    this.#listener = new Listener(options, (client, flow) => this.#accept(client, flow));
  }

  open(): Promise<void> {
    return this.#listener.open();
  }

  use(image: InspectionImage): void {
    this.#plane.judge.use(image);
    for (const connection of this.#connections) void connection.judgeAgain();
  }

  useCa(ca: InterceptCa | null): void {
    this.#plane.interceptor.useCa(ca);
  }

  grantsBy(port: MessagePort): void {
    this.#plane.judge.grantsBy(port);
  }

  stats(): ServicePlaneStats {
    return this.#plane.counts.stats(this.#connections.size);
  }

  takeSeen(): SeenConnections {
    const taken = { connections: this.#seen, lost: this.#lost };
    this.#seen = [];
    this.#lost = 0;
    return taken;
  }

  async close(): Promise<void> {
    const closed = this.#listener.close();
    for (const connection of this.#connections) connection.cut();
    this.#plane.interceptor.close();
    await closed;
  }

  #accept(client: Socket, flow: Packet): void {
    if (this.#connections.size >= this.options.maxConnections) {
      this.#plane.counts.refuse('too_many_connections');
      client.resetAndDestroy();
      return;
    }
    const connection = new Connection(this.#plane, client, flow, (over) => this.#connections.delete(over));
    this.#connections.add(connection);
    void connection.begin();
  }

  #see(seen: Omit<SeenConnection, 'atMs'>): void {
    if (seen.verdict === 'allow' && !this.allowedWanted) return;
    if (this.#seen.length < SEEN) this.#seen.push({ ...seen, atMs: Date.now() });
    else this.#lost++;
  }
}
