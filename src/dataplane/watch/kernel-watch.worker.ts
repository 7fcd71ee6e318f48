import { parentPort, workerData } from 'node:worker_threads';
import { EventFd } from '#libc/event-fd.js';
import { EventReader } from './event-reader.js';
import { NotificationSockets } from './kernel-notifications.js';
import { KERNEL_WATCH, type KernelWatchInput } from './kernel-watch.js';
import { Poll } from './poll.js';

const port = parentPort;
if (port === null) throw new Error('start the kernel watch: it must run in a worker thread');
const { eventFd, shared, maps, batches } = workerData as KernelWatchInput;

try {
  const wake = new EventFd(eventFd);
  const sockets = new NotificationSockets();
  const reader = new EventReader(maps, batches, () => Atomics.load(shared, KERNEL_WATCH.batchesTaken));
  const poll = new Poll([wake.fd, ...sockets.fds]);
  // The kernel sent no notification for changes that happened before the sockets were opened. So report all
  // kinds of state as changed once.
  port.postMessage({ links: true, guard: true, thirdPartyHooks: true });
  while (Atomics.load(shared, KERNEL_WATCH.end) === 0) {
    if (poll.wait(reader.pauseMs)) {
      const notifications = sockets.take();
      if (notifications.links || notifications.guard || notifications.thirdPartyHooks) port.postMessage(notifications);
    }
    reader.read();
  }
  reader.close();
  sockets.close();
} finally {
  Atomics.store(shared, KERNEL_WATCH.ended, 1);
  Atomics.notify(shared, KERNEL_WATCH.ended);
}
