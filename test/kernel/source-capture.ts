import { createInterface } from 'node:readline';
import type { NamespaceCommands } from '#cli/tour/topology.js';

const PROGRAM = `
import collections, json, socket, sys, threading
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
s.bind((sys.argv[1], 0))
seen = collections.Counter()
lock = threading.Lock()
def receive():
    while True:
        packet, where = s.recvfrom(64)
        if where[2] != 4:
            with lock: seen[socket.inet_ntoa(packet[12:16])] += 1
threading.Thread(target=receive, daemon=True).start()
print('ready', flush=True)
for line in sys.stdin:
    with lock:
        print(json.dumps(seen), flush=True)
        seen.clear()
`;

/** Counts the IPv4 packets that an interface receives, by source address. */
export type SourceCapture = {
  /** Returns the number of packets from each source since the last call. */
  sources(): Promise<Readonly<Record<string, number>>>;
};

export async function startSourceCapture(host: Pick<NamespaceCommands, 'start'>, name: string): Promise<SourceCapture> {
  const child = host.start('/usr/bin/python3', ['-u', '-c', PROGRAM, name]);
  if (child.stdout === null) throw new Error('the capture has no output');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  await lines.next();
  return {
    sources: async () => {
      child.stdin?.write('\n');
      return JSON.parse((await lines.next()).value ?? '{}') as Record<string, number>;
    },
  };
}
