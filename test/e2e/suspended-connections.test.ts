import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES, type NamespaceCommands } from '#cli/tour/topology.js';
import { createRig, policyOf } from './rig.js';

/** `WEIR_CONNECTIONS` and `WEIR_SECONDS` replace the defaults. With 30 s the test takes a minute. */
const CONNECTIONS = Number(process.env.WEIR_CONNECTIONS ?? 1_000);
const SECONDS = Number(process.env.WEIR_SECONDS ?? 5);
/** Number of further connections whose client gives up after two seconds without an acknowledgment. */
const IMPATIENT = 50;
const PORT = 80;
const OTHER_PORT = 81;
/**
 * The longest time after a revert until each connection goes on, in ms. TCP waits twice as long before each
 * retransmission, so the next retransmission can be as far away as the denial was long.
 */
const GO_ON_MS = 2_000 * SECONDS + 5_000;

const SERVER = `
import selectors,socket
ready=selectors.DefaultSelector()
listener=socket.create_server(('${ADDRESSES.server}',${PORT}),backlog=2048)
listener.setblocking(False)
ready.register(listener,selectors.EVENT_READ)
print('ready',flush=True)
while True:
  for key,_ in ready.select():
    if key.fileobj is listener:
      accepted=listener.accept()[0]
      ready.register(accepted,selectors.EVENT_READ)
      continue
    try: data=key.fileobj.recv(4096)
    except OSError: data=b''
    if data: key.fileobj.sendall(data)
    else:
      ready.unregister(key.fileobj)
      key.fileobj.close()`;

/**
 * Keeps connections open, and sends a numbered line on each as soon as the last one came back. On a line of
 * the standard input prints a `Report`, and begins to count anew.
 */
const CLIENT = `
import json,selectors,socket,sys,time
ready=selectors.DefaultSelector()
class Connection:
  def __init__(self,impatient):
    self.socket=socket.create_connection(('${ADDRESSES.server}',${PORT}))
    if impatient: self.socket.setsockopt(socket.IPPROTO_TCP,socket.TCP_USER_TIMEOUT,2000)
    self.socket.setblocking(False)
    self.impatient,self.number,self.echoes,self.failed,self.wrong,self.came=impatient,0,0,False,0,b''
    ready.register(self.socket,selectors.EVENT_READ,self)
    self.send()
  def send(self):
    self.number+=1
    self.line=b'%d\\n'%self.number
    self.due=None
    self.socket.send(self.line)
  def read(self):
    try: data=self.socket.recv(4096)
    except OSError: data=b''
    if not data:
      self.failed=True
      ready.unregister(self.socket)
      return
    self.came+=data
    if not self.came.endswith(b'\\n'): return
    self.wrong+=self.came!=self.line
    self.came=b''
    self.echoes+=1
    self.due=time.monotonic()+0.5
every=[Connection(n>=${CONNECTIONS}) for n in range(${CONNECTIONS + IMPATIENT})]
ready.register(sys.stdin,selectors.EVENT_READ)
print('ready',flush=True)
while True:
  for key,_ in ready.select(0.05):
    if key.data is None:
      if not sys.stdin.readline(): sys.exit()
      patient=[each for each in every if not each.impatient]
      print(json.dumps({'goOn':sum(each.echoes>0 for each in patient),'failed':sum(each.failed for each in patient),'gaveUp':sum(each.failed for each in every)-sum(each.failed for each in patient),'wrong':sum(each.wrong for each in every)}),flush=True)
      for each in every: each.echoes=0
    else: key.data.read()
  now=time.monotonic()
  for each in every:
    if not each.failed and each.due and each.due<now: each.send()`;

/**
 * `goOn`: the patient connections on which a line came back since the last report. `wrong`: the lines that
 * came back changed.
 */
type Report = { readonly goOn: number; readonly failed: number; readonly gaveUp: number; readonly wrong: number };

class Clients {
  readonly #child: ChildProcess;
  readonly #lines: Interface;

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  }

  static async start(client: NamespaceCommands): Promise<Clients> {
    const clients = new Clients(client.start('/usr/bin/python3', ['-c', CLIENT]));
    await once(clients.#lines, 'line');
    return clients;
  }

  async report(): Promise<Report> {
    const line = once(this.#lines, 'line');
    this.#child.stdin?.write('report\n');
    return JSON.parse((await line)[0] as string) as Report;
  }

  end(): void {
    this.#child.kill('SIGKILL');
  }
}

/** Counts the TCP packets of the port that arrive in a namespace. */
async function countArrivals(at: NamespaceCommands, side: 'sport' | 'dport'): Promise<() => Promise<number>> {
  await at.must(
    'nft',
    `table inet arrivals {
  counter seen { }
  chain in {
    type filter hook prerouting priority -400
    tcp ${side} ${PORT} counter name seen
  }
}`,
  );
  return async () => Number(/packets (\d+)/.exec(await at.must('nft', 'list', 'counters'))?.[1]);
}

const MASQUERADE = [
  'add table ip mine',
  'add chain ip mine post { type nat hook postrouting priority 100; }',
  'add rule ip mine post oifname "wan0" masquerade',
];
const ALLOW = policyOf([{ match: { proto: 'tcp', dst_ports: [PORT, OTHER_PORT] } }]);

type Gateway = { readonly tag: string; readonly rules?: readonly string[]; readonly isKilled?: boolean };

/** Denies all connections through a gateway for `SECONDS`, and checks them until they go on. */
async function revertsWhole({ tag, rules = [], isKilled = false }: Gateway): Promise<void> {
  const rig = await createRig(`suspend-${tag}`, [OTHER_PORT], { dataplane: { pickup: '0s' } });
  let clients: Clients | undefined;
  try {
    const { client, node, server } = rig.topology;
    for (const rule of rules) await node.must('nft', rule);
    await firstLine(server.start('/usr/bin/python3', ['-c', SERVER]));
    await rig.put(ALLOW);
    const running = await Clients.start(client);
    clients = running;
    const allGoOn = () =>
      expect
        .poll(() => running.report(), { interval: 1_500, timeout: GO_ON_MS })
        .toMatchObject({ goOn: CONNECTIONS, failed: 0, wrong: 0 });
    await allGoOn();
    const arrivals = await Promise.all([countArrivals(server, 'dport'), countArrivals(client, 'sport')]);
    const arrived = () => Promise.all(arrivals.map((count) => count()));

    const begun = performance.now();
    const denied = await rig.node.request('PUT', `/api/v1/policy?confirm_within=${SECONDS}`, policyOf([]));
    expect(denied.status).toBe(200);
    const atFirst = await arrived();
    await running.report();
    if (isKilled) await rig.node.end('SIGKILL');
    expect(await rig.tcp(OTHER_PORT)).not.toMatch(/^open/);
    await pause(begun + SECONDS * 1_000 - 700 - performance.now());
    const { goOn, failed, gaveUp } = await running.report();
    expect([await arrived(), goOn, failed, gaveUp], tag).toEqual([atFirst, 0, 0, IMPATIENT]);
    if (!isKilled) {
      const { body } = await rig.node.request('GET', '/api/v1/flows?suspended&limit=1');
      const { matched, items } = body as { matched: number; items: unknown[] };
      expect(matched).toBeGreaterThanOrEqual(CONNECTIONS);
      expect(items).toMatchObject([{ suspended: true, verdict: 'deny', state: 'tcp_established' }]);
    }
    await allGoOn();
  } finally {
    clients?.end();
    await rig.remove();
  }
}

test(
  `${CONNECTIONS} TCP connections go on after a policy that denies everything is reverted, and pass nothing before: through a plain gateway, one with masquerade, and one whose process is killed`,
  async () => {
    const gateways: Gateway[] = [{ tag: 'plain' }, { tag: 'masq', rules: MASQUERADE }, { tag: 'dead', isKilled: true }];
    const ended = await Promise.allSettled(gateways.map(revertsWhole));
    expect(ended.filter(({ status }) => status === 'rejected')).toEqual([]);
  },
  120_000 + 5_000 * SECONDS,
);
