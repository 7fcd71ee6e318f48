import { type MessagePort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { f64At, itemAt } from '#arrays/read.js';
import type { Adoption, Attachment, Missing } from '#contracts/datapath/datapath.js';
import type {
  GrantAnswer,
  GrantedReply,
  GrantedRequest,
  GrantRequest,
  HitsMessage,
} from '#contracts/datapath/grant-messages.js';
import type { RenamedPolicing } from '#contracts/datapath/renamed-interface.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { portsOf } from '#dataplane/events/event-consumer.js';
import type { KernelNotifications } from '#dataplane/watch/kernel-notifications.js';
import { KernelWatch } from '#dataplane/watch/kernel-watch.js';
import { Descriptors } from '#libc/descriptors.js';
import { isOutOfDescriptors } from '#libc/kernel-failure.js';
import { WorkerServer } from '#threads/worker-server.js';
import { type DatapathRequests, type FromDatapath, serializeError, type WorkerInput } from './datapath-messages.js';
import { LocalDatapath } from './local-datapath.js';

const WATCH_INTERVAL_MS = 1_000;
const SWEEP_INTERVAL_MS = 1_000;

const parent = new WorkerServer<DatapathRequests, never, FromDatapath>('the datapath');
const { options, eventsWanted, descriptors } = workerData as WorkerInput;
const datapath = new LocalDatapath(options, new Descriptors(descriptors));
datapath.setEventsWanted(eventsWanted);
let kernelWatch: KernelWatch | undefined;
/**
 * True if the datapath is open, but its kernel-watch thread could not start because no file descriptor was
 * free. The next call of `look` starts that thread.
 */
let isKernelWatchDue = false;
/**
 * False before the first `attach` of an open datapath. Until then `look` reports nothing, because it reports
 * each change once, and the dataplane actor may not listen yet.
 */
let isAttached = false;
/** The features that the last `probe` found missing; null before the first `probe`. */
let missing: readonly Missing[] | null = null;

function probe(): readonly Missing[] {
  const found = datapath.probe();
  missing = found;
  return found;
}

function openIfSupported(): Adoption {
  if (missing === null) throw new Error('open the datapath: the features of the kernel were not probed before');
  if (missing.length > 0) throw new Error(missing.map(({ sentence }) => sentence).join(' '));
  return open();
}

function open(): Adoption {
  isAttached = false;
  endKernelWatch();
  const adoption = datapath.open();
  beginKernelWatch();
  return adoption;
}

function attach(): readonly Attachment[] {
  isAttached = true;
  try {
    return datapath.attach();
  } finally {
    look({ links: true, guard: false, thirdPartyHooks: false });
  }
}

function police(interfaces: readonly string[], renamed: RenamedPolicing): readonly Attachment[] | null {
  try {
    return datapath.police(interfaces, renamed);
  } finally {
    look({ links: true, guard: false, thirdPartyHooks: false });
  }
}

function renewEventSource(): void {
  if (kernelWatch === undefined) return;
  endKernelWatch();
  beginKernelWatch();
}

type FromGrantor = GrantRequest | GrantedRequest | HitsMessage;
const grantors = new Set<MessagePort>();

/**
 * Serves the requests to grant addresses, and counts the hits, that arrive on a message port, until one end
 * of the port is closed.
 */
function serveGrants(grantor: MessagePort): void {
  grantors.add(grantor);
  grantor.on('message', (request: FromGrantor) => serve(grantor, request));
  grantor.on('close', () => grantors.delete(grantor));
}

function serve(grantor: MessagePort, request: FromGrantor): void {
  if ('hits' in request) {
    datapath.addHits(request.hits);
    return;
  }
  if ('patterns' in request) {
    grantFor(grantor, request);
    return;
  }
  const { id, address, expiredToo } = request;
  grantor.postMessage({ id, patterns: datapath.grantedFor(address, expiredToo) } satisfies GrantedReply);
}

function grantFor(grantor: MessagePort, { id, patterns, addresses, expiriesNs }: GrantRequest): void {
  let refused: number | null = null;
  try {
    const grants = patterns.map((pattern, row) => ({
      pattern,
      addresses: [itemAt(addresses, row)],
      expiresAtNs: BigInt(Math.floor(f64At(expiriesNs, row))),
    }));
    ({ refused } = datapath.grant(grants));
  } catch {
    // `datapath.grant` throws if the datapath is not open. `refused` then stays null, and the requester must
    // treat the addresses as not granted.
  }
  grantor.postMessage({ id, refused } satisfies GrantAnswer);
}

datapath.yieldToRequests = () => {
  serveGrantors();
  parent.serveUrgent();
};

function serveGrantors(): void {
  for (const grantor of grantors) {
    for (let next = receiveMessageOnPort(grantor); next !== undefined; next = receiveMessageOnPort(grantor)) {
      serve(grantor, (next as { readonly message: FromGrantor }).message);
    }
  }
}

datapath.found = (inForce) => parent.send({ kind: 'found', inForce });
datapath.announce = (placed) => kernelWatch?.tell({ kind: 'rule_names', placed });

function tellInterfaces(): void {
  kernelWatch?.tell({
    kind: 'interfaces',
    names: new Map(listInterfaces().map(({ ifindex, name }) => [ifindex, name])),
  });
}

function beginKernelWatch(): void {
  isKernelWatchDue = true;
  kernelWatch = new KernelWatch(datapath.kernelWatchMaps(), look, (failure) => {
    if (!isOutOfDescriptors(failure)) throw failure;
    endKernelWatch();
    isKernelWatchDue = true;
  });
  isKernelWatchDue = false;
  parent.send({ kind: 'events', source: kernelWatch.source }, portsOf(kernelWatch.source));
  for (const placed of datapath.placed()) datapath.announce(placed);
  tellInterfaces();
}

function endKernelWatch(): void {
  isKernelWatchDue = false;
  kernelWatch?.end();
  kernelWatch = undefined;
}

parent.serve(
  {
    probe,
    open,
    openIfSupported,
    check: () => datapath.check(),
    attach,
    police,
    review: () => datapath.review(),
    stage: (program, generation, standing) => datapath.stage(program, generation, standing),
    prove: (samples) => datapath.prove(samples),
    flip: (standing) => datapath.flip(standing),
    unstage: () => datapath.unstage(),
    grant: (grants) => datapath.grant(grants),
    revoke: (grants) => datapath.revoke(grants),
    grantBy: serveGrants,
    spliceOffload: () => datapath.spliceOffload(),
    learned: () => datapath.learned(),
    arrival: (source) => datapath.arrival(source),
    destinationTranslation: (packet) => datapath.destinationTranslation(packet),
    stats: () => datapath.stats(),
    hits: (query) => datapath.hits(query),
    groupTraffic: () => datapath.groupTraffic(),
    flows: (query) => datapath.flows(query),
    cutFlows: (query) => datapath.cutFlows(query),
    setEventsWanted: (wanted) => datapath.setEventsWanted(wanted),
    renewEventSource,
    close: () => {
      endKernelWatch();
      // Read the messages that still wait in the ports, so that the hits that other threads sent before
      // `close` are counted.
      serveGrantors();
      return datapath.close();
    },
  },
  undefined,
  {
    failureOf: serializeError,
    urgent: {
      changeMembers: (change) => datapath.memberChanges.change(change),
      replaceMembers: (list) => datapath.memberChanges.replace(list),
      confirm: (generation) => datapath.confirm(generation),
    },
    replied: (what) => {
      if (what === 'flip') datapath.flushAfterFlip();
    },
  },
);

/** The error message of the last call of `look`; null if that call succeeded. */
let lookFault: string | null = null;

/**
 * Reports changes of the kernel's state to the main thread. If no file descriptor is free, reports that
 * fault to the main thread. The interval below then calls `look` again for all kinds of state.
 */
function look(notifications?: KernelNotifications): void {
  try {
    if (isKernelWatchDue) beginKernelWatch();
    if (!isAttached) return;
    if (notifications?.links === true || lookFault !== null) tellInterfaces();
    for (const change of datapath.look(notifications)) parent.send({ kind: 'change', change });
    tellLookFault(null);
  } catch (failure) {
    if (!isOutOfDescriptors(failure)) throw failure;
    tellLookFault(failure instanceof Error ? failure.message : String(failure));
  }
}

function tellLookFault(fault: string | null): void {
  const hasChanged = (fault === null) !== (lookFault === null);
  lookFault = fault;
  if (hasChanged) parent.send({ kind: 'change', change: { type: 'watch_fault_changed', fault } });
}

// Read all kinds of state at an interval, because the kernel sends no notification when an operator detaches
// a link or removes a pin.
setInterval(() => look(), options.watchIntervalMs ?? WATCH_INTERVAL_MS);
setInterval(() => datapath.sweepGrants(), SWEEP_INTERVAL_MS);
