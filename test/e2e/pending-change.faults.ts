import type { ChildProcess } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { Random, seedOf } from '#test/seed.js';
import { createRig, type NodeRig } from './rig.js';

/**
 * Number of times that the test kills a node while a change is pending. `WEIR_KILLS` replaces the default.
 * The nodes run at the same time: 200 kills take about five minutes on two processors.
 */
const KILLS = Number(process.env.WEIR_KILLS ?? 16);
const NODES = Number(process.env.WEIR_NODES ?? Math.min(8, Math.ceil(KILLS / 4)));
/** The time in which a change must be confirmed, in ms. */
const WITHIN_MS = 5_000;
/** Nothing unconfirmed may be in force this time after the deadline, in ms. */
const PAST_MS = 1_000;
const PORTS = [80, 81] as const;
type Port = (typeof PORTS)[number];

/**
 * The fault of one round. `dead`: the process is killed, and stays dead until after the deadline.
 * `restarted`: it is killed and started again, once or twice. `confirmed` and `replaced`: it is killed during
 * a confirmation, or during a later write. `stopped`: it is stopped until after the deadline, and then
 * killed.
 */
const FAULTS = ['dead', 'dead', 'dead', 'restarted', 'restarted', 'confirmed', 'replaced', 'stopped'] as const;
type Fault = (typeof FAULTS)[number];

const other = (port: Port): Port => (port === 80 ? 81 : 80);

/**
 * Returns a policy that allows one UDP port. The filler rules make a write slow, so that a kill can hit it.
 */
function allowing(port: Port, filler = 1_000): unknown {
  const rules = Array.from({ length: filler }, (_, index) => ({
    id: `f${index}`,
    action: 'deny',
    match: { dst_ips: [`198.51.${index >> 8}.${index & 255}`], proto: 'tcp', dst_ports: [port] },
  }));
  return {
    default_policy: 'deny',
    source_groups: [
      {
        id: `port-${port}`,
        mode: 'enforce',
        sources: { ips: [ADDRESSES.client] },
        rules: [{ id: 'one', action: 'allow', match: { proto: 'udp', dst_ports: [port] } }, ...rules],
      },
    ],
  };
}

/**
 * The results of all rounds. `latestMs`: the longest time after a deadline that a packet of the change
 * passed.
 */
const seen = {
  kills: {} as Record<Fault, number>,
  ends: { reverted: 0, confirmed: 0, 'never committed': 0 },
  latestMs: Number.NEGATIVE_INFINITY,
  findings: { reported: 0, 'lost by a kill': 0 },
};

/** One node with its client, and a steady flow to each of the two ports. */
class Round {
  readonly #passed: Record<Port, number> = { 80: 0, 81: 0 };
  readonly #flows: ChildProcess[] = [];

  constructor(
    readonly rig: NodeRig,
    readonly random: Random,
    readonly name: string,
  ) {
    for (const port of PORTS) {
      const flow = rig.topology.client.start(process.execPath, [
        program('tour-traffic'),
        ...['connect-udp', ADDRESSES.server, String(port), '--every', '25', '--timeout', '200'],
      ]);
      flow.stdout?.setEncoding('utf8').on('data', (text: string) => {
        if (text.includes('pong')) this.#passed[port] = performance.now();
      });
      this.#flows.push(flow);
    }
  }

  async end(): Promise<void> {
    for (const flow of this.#flows) flow.kill('SIGKILL');
    await this.rig.remove();
  }

  /** Returns the port that a new flow passes by, of the two. */
  async open(): Promise<Port> {
    // On a busy machine, the traffic program can end before its line is written.
    const ask = (port: Port) => this.rig.udp(port, '--timeout', '400');
    const lines = await Promise.all(PORTS.map((port) => ask(port).catch(() => ask(port))));
    const passing = PORTS.filter((_, at) => lines[at] === 'pong 1');
    expect(passing, `${this.name}: exactly one port is allowed`).toHaveLength(1);
    return passing[0] ?? 80;
  }

  async stored(): Promise<Port> {
    const { body } = await this.rig.node.request('GET', '/api/v1/policy');
    const [group] = (body as { source_groups: { id: string }[] }).source_groups;
    return group?.id === 'port-80' ? 80 : 81;
  }

  async change(): Promise<{ pending: unknown; reverted: { generation: number; reason: string } | null }> {
    return (await this.rig.node.request('GET', '/api/v1/policy/pending')).body as never;
  }

  async kill(fault: Fault): Promise<void> {
    await this.rig.node.end('SIGKILL');
    seen.kills[fault] = (seen.kills[fault] ?? 0) + 1;
  }

  async restart(): Promise<void> {
    await this.rig.node.restart();
    await this.rig.node.ready();
  }

  /** Makes a change of the policy `base` and one fault. Returns the policy that is confirmed afterwards. */
  async run(base: Port): Promise<Port> {
    const { random, rig, name } = this;
    const fault = random.pick(FAULTS);
    const next = other(base);
    const lastReverted = (await this.change()).reverted?.generation ?? 0;
    const begun = performance.now();
    let answeredAt: number | null = null;
    const write = rig.node.request('PUT', `/api/v1/policy?confirm_within=${WITHIN_MS / 1_000}`, allowing(next)).then(
      ({ status }) => {
        expect(status, name).toBe(200);
        answeredAt = performance.now();
      },
      () => {},
    );
    let mayBeConfirmed = false;
    let mustBeConfirmed = false;
    let killedAt = 0;
    let continuedAt: number | null = null;
    const wait = (low: number, high: number): Promise<void> =>
      pause(Math.max(0, begun + random.between(low, high) - performance.now()));
    const request = (method: string, path: string, body?: unknown): Promise<boolean> =>
      rig.node.request(method, path, body).then(
        ({ status }) => status === 200,
        () => false,
      );
    switch (fault) {
      case 'dead':
        await wait(0, WITHIN_MS + 300);
        await this.kill(fault);
        killedAt = performance.now();
        break;
      case 'restarted':
        for (let round = random.between(1, 2); round > 0; round--) {
          await wait(0, WITHIN_MS);
          await this.kill(fault);
          killedAt ||= performance.now();
          await pause(random.between(0, 300));
          if (round > 1) await rig.node.restart();
        }
        await this.restart();
        break;
      case 'confirmed':
      case 'replaced': {
        await write;
        await wait(500, WITHIN_MS - 200);
        mayBeConfirmed = true;
        const ending =
          fault === 'confirmed'
            ? request('POST', '/api/v1/policy/pending/confirm')
            : request('PUT', '/api/v1/policy', allowing(next));
        await pause(random.between(0, 400));
        await this.kill(fault);
        killedAt = performance.now();
        mustBeConfirmed = await ending;
        break;
      }
      case 'stopped':
        await write;
        await wait(0, WITHIN_MS - 200);
        process.kill(rig.node.pid, 'SIGSTOP');
        break;
    }
    if (fault !== 'stopped') await write;
    // The time begins between the request and its answer, or the kill.
    const deadline = (answeredAt ?? killedAt) + WITHIN_MS;
    await pause(Math.max(0, deadline + PAST_MS - performance.now()));
    const late = this.#passed[next] - deadline;
    if (!mayBeConfirmed) {
      if (this.#passed[next] > begun) seen.latestMs = Math.max(seen.latestMs, late);
      expect(late, `${name} ${fault}: ms after the deadline`).toBeLessThan(PAST_MS);
      expect(await this.open(), `${name} ${fault}: without the process, after the deadline`).toBe(base);
    } else if (mustBeConfirmed) expect(await this.open(), `${name} ${fault}: confirmed`).toBe(next);
    if (fault === 'stopped') {
      process.kill(rig.node.pid, 'SIGCONT');
      continuedAt = performance.now();
      await pause(random.between(0, 300));
      await this.kill(fault);
      killedAt = performance.now();
    }
    if (fault !== 'restarted') await this.restart();
    if (!mayBeConfirmed) {
      const after = this.#passed[next] - deadline;
      expect(after, `${name} ${fault}: ms after the deadline, also during the start`).toBeLessThan(PAST_MS);
    }

    const inForce = await this.open();
    const { pending, reverted } = await this.change();
    expect(pending, `${name} ${fault}: no change is pending after the deadline`).toBeNull();
    expect(await this.stored(), `${name} ${fault}: store and kernel agree`).toBe(inForce);
    if (mustBeConfirmed) expect(inForce, `${name} ${fault}: confirmed`).toBe(next);
    if (!mayBeConfirmed) expect(inForce, `${name} ${fault}: not confirmed`).toBe(base);
    const isReverted = reverted !== null && reverted.generation > lastReverted;
    if (isReverted) {
      // The process reverts at the deadline, or when it continues.
      const revertedAt = continuedAt ?? deadline;
      await this.checkFinding(reverted, killedAt - revertedAt);
    }
    seen.ends[inForce === next ? 'confirmed' : isReverted ? 'reverted' : 'never committed']++;
    return inForce;
  }

  /**
   * Checks that one finding names the revert. A kill in the two seconds after the revert can lose it: the
   * process has stored the revert then, and not the finding yet.
   */
  async checkFinding({ generation, reason }: { generation: number; reason: string }, killedMs: number): Promise<void> {
    const find = async (): Promise<number> => {
      const query = 'finding_type=config_change&limit=200';
      const { body } = await this.rig.node.request('GET', `/api/v1/audit/findings/local?${query}`);
      const { items } = body as { items: { actor: string; target: string; count: number }[] };
      const target = `generation ${generation}: ${reason}`;
      return items.reduce((sum, item) => sum + (item.actor === 'weir' && item.target === target ? item.count : 0), 0);
    };
    const until = performance.now() + 5_000;
    let count = await find();
    while (count === 0 && performance.now() < until) {
      await pause(200);
      count = await find();
    }
    if (count === 0 && killedMs > -200 && killedMs < 2_000) seen.findings['lost by a kill']++;
    else {
      expect(count, `${this.name}: findings about generation ${generation}`).toBe(1);
      seen.findings.reported++;
    }
  }
}

test(`after kill -9 or SIGSTOP at a random moment while a change is pending, ${KILLS} times, nothing unconfirmed is in force ${PAST_MS} ms after the deadline, and store and kernel agree`, async () => {
  const random = new Random(seedOf(47));
  console.log(`seed ${random.seed} (WEIR_SEED), ${NODES} nodes`);
  const total = (): number => Object.values(seen.kills).reduce((sum, count) => sum + count, 0);
  const runNode = async (number: number, seed: number): Promise<void> => {
    const rig = await createRig(`pc${number}`, PORTS);
    const round = new Round(rig, new Random(seed), `node ${number}`);
    try {
      let base: Port = 80;
      await rig.put(allowing(base));
      while (total() < KILLS) base = await round.run(base);
    } catch (failure) {
      console.log(await rig.node.log());
      throw failure;
    } finally {
      await round.end();
    }
  };
  const seeds = Array.from({ length: NODES }, () => random.word());
  const ended = await Promise.allSettled(seeds.map((seed, number) => runNode(number, seed)));
  console.log(`${total()} kills: ${JSON.stringify(seen)}`);
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}, 7_200_000);
