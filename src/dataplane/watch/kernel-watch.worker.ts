import { parentPort, workerData } from 'node:worker_threads';
import { Bell } from '#libc/bell.js';
import { EventReader } from './event-reader.js';
import { NewsSockets } from './kernel-notifications.js';
import { EAR, type EarInput } from './kernel-watch.js';
import { Poll } from './poll.js';

const port = parentPort;
if (port === null) throw new Error('the ear listens in a worker thread');
const { bellFd, shared, maps, batches } = workerData as EarInput;

try {
  const bell = new Bell(bellFd);
  const sockets = new NewsSockets();
  const reader = new EventReader(maps, batches, () => Atomics.load(shared, EAR.batchesTaken));
  const poll = new Poll([bell.fd, ...sockets.fds]);
  // What happened before the sockets were there.
  port.postMessage({ links: true, guard: true, others: true });
  while (Atomics.load(shared, EAR.end) === 0) {
    if (poll.wait(reader.pauseMs)) {
      const news = sockets.take();
      if (news.links || news.guard || news.others) port.postMessage(news);
    }
    reader.read();
  }
  reader.close();
  sockets.close();
} finally {
  Atomics.store(shared, EAR.ended, 1);
  Atomics.notify(shared, EAR.ended);
}
