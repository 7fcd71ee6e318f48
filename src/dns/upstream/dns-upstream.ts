import { parseAddress } from '#addresses/ip-address.js';
import type { UpstreamStats } from '#contracts/dns/dns-stats.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { nowMs } from '#dns/clock.js';
import { type Endpoint, textOf } from '#dns/dns-options.js';
import { FLAG, RCODE, TYPE } from '#dns/wire/dns-numbers.js';
import type { Message } from '#dns/wire/message/dns-message.js';
import { nameOf } from '#dns/wire/name.js';
import { sourceTowards } from '#sockets/routes/source-address.js';
import type { Pump } from '#sockets/udp/pump.js';
import type { UpstreamQuery } from './pending-query.js';
import { TcpExchange } from './tcp-exchange.js';
import { UdpPool } from './udp-pool.js';
import type { Server } from './udp-socket.js';

/**
 * After this many unanswered queries in a row, the proxy queries the upstream only after all other upstreams.
 * The proxy then sends a probe to check whether the upstream is alive.
 */
const SILENT = 3;
const PROBE_TIMEOUT_MS = 1_000;
const SMOOTHING = 0.1;
const ROOT = nameOf([]);
const PROBE: UpstreamQuery = {
  name: ROOT,
  key: '\0',
  type: TYPE.ns,
  class: 1,
  recursionDesired: true,
  checkingDisabled: false,
  dnssecOk: false,
  options: [],
};

/** A query that was sent to one upstream. `forget` drops the query; its callbacks are then not called. */
export type Attempt = { forget(): void };

/**
 * One upstream, a DNS resolver. `Upstream` sends each query over UDP, and again over TCP if the UDP answer is
 * truncated.
 */
export class Upstream {
  readonly address: string;
  /**
   * Moving average of the upstream's response time in milliseconds. Null before the first response of the
   * upstream.
   */
  latencyMs: number | null = null;
  #silent = 0;
  #queries = 0;
  #timeouts = 0;
  #isDead = false;
  #isProbed = false;
  /** The source address of packets to the upstream. Null if the kernel has no route to the upstream. */
  #source: Address | null = null;
  readonly #to: Server;
  readonly #pool: UdpPool;
  readonly #tcp: TcpExchange;

  constructor(
    pump: Pump,
    endpoint: Endpoint,
    private readonly mark: number,
    onStray: (reason: string) => void,
    private readonly onAliveness: () => void,
  ) {
    this.address = textOf(endpoint);
    const address = parseAddress(endpoint.host);
    if (address === undefined) throw new Error(`open the DNS upstream ${endpoint.host}: it is not an IP address`);
    this.#to = { address, port: endpoint.port };
    this.#pool = new UdpPool(pump, this.#to, mark, onStray, () => this.renew());
    this.#tcp = new TcpExchange(endpoint, mark, onStray);
  }

  get isAlive(): boolean {
    return !this.#isDead;
  }

  /**
   * Whether the upstream left at least its last `SILENT` queries unanswered. Such an upstream may be alive
   * and only slow for these queries, so `probe` sends a test query.
   */
  get isSilent(): boolean {
    return this.#silent >= SILENT;
  }

  stats(): UpstreamStats {
    const { address, isAlive: alive, latencyMs } = this;
    return { address, alive, queries: this.#queries, timeouts: this.#timeouts, latencyMs };
  }

  /**
   * Opens the UDP sockets. Throws a `KernelFailure` if a socket cannot be opened. Opens no socket if the
   * kernel has no route to the upstream.
   */
  open(): void {
    this.#source = sourceTowards(this.#to, this.mark);
    if (this.#source !== null) this.#pool.open();
  }

  /**
   * Replaces the sockets if the kernel now uses another source address towards the upstream. Returns whether
   * the sockets were replaced. Call this method when addresses or routes may have changed.
   */
  renew(): boolean {
    const source = this.#sourceNow();
    if (source === this.#source) return false;
    this.#source = source;
    this.#pool.renew();
    this.#tcp.renew();
    if (this.#isDead) this.probe();
    return true;
  }

  close(): void {
    this.#pool.close();
    this.#tcp.close();
  }

  /**
   * Queries the upstream. Calls `onAnswer` or `onError` at most once; `onError` if no answer can arrive any
   * more. There is no time limit: a caller that has waited too long calls `countTimeout`.
   */
  ask(asked: UpstreamQuery, onAnswer: (message: Message) => void, onError: () => void): Attempt {
    const since = nowMs();
    const settle = (message: Message): void => {
      this.#answered(nowMs() - since);
      onAnswer(message);
    };
    const fail = (): void => {
      this.countTimeout();
      onError();
    };
    this.#queries++;
    let forget: () => void;
    const byTcp = (): void => {
      forget = this.#tcp.send(asked, settle, fail);
    };
    forget = this.#pool.send(
      asked,
      (message) => {
        if ((message.flags & FLAG.tc) === 0) settle(message);
        else byTcp();
      },
      fail,
    );
    return { forget: () => forget() };
  }

  /**
   * Counts a query that timed out or failed. Sends a probe if at least the last `SILENT` queries have no
   * answer.
   */
  countTimeout(): void {
    this.#timeouts++;
    this.#silent++;
    if (this.isSilent && !this.#isDead) this.probe();
  }

  /**
   * Checks whether the upstream is alive: sends a query for the NS records of the root, which any working
   * upstream can answer.
   */
  probe(): void {
    if (this.#isProbed) return;
    this.#isProbed = true;
    const end = (isThere: boolean): void => {
      clearTimeout(timeout);
      this.#isProbed = false;
      if (isThere || this.#isDead) return;
      this.#isDead = true;
      this.onAliveness();
    };
    const timeout = setTimeout(() => {
      attempt.forget();
      this.countTimeout();
      end(false);
    }, PROBE_TIMEOUT_MS).unref();
    const attempt = this.ask(
      PROBE,
      () => end(true),
      () => end(false),
    );
  }

  #sourceNow(): Address | null {
    try {
      return sourceTowards(this.#to, this.mark);
    } catch {
      // The source address is unknown, for example because no descriptor is free. Return the current source
      // address, so that `renew` keeps the existing sockets.
      return this.#source;
    }
  }

  #answered(tookMs: number): void {
    this.latencyMs = this.latencyMs === null ? tookMs : this.latencyMs + (tookMs - this.latencyMs) * SMOOTHING;
    this.#silent = 0;
    if (!this.#isDead) return;
    this.#isDead = false;
    this.onAliveness();
  }
}

/**
 * Whether the message is a refusal (SERVFAIL, REFUSED, NOTIMP or FORMERR). Another upstream may then have an
 * answer.
 */
export function isRefusal({ rcode }: Message): boolean {
  return rcode === RCODE.servfail || rcode === RCODE.refused || rcode === RCODE.notimp || rcode === RCODE.formerr;
}
