import { rmSync } from 'node:fs';
import { connect, createServer, type Server, type Socket } from 'node:net';

/**
 * The program `node relay.js SOCKET HOST PORT` runs in the network namespace of a node. It relays each
 * connection to the Unix socket SOCKET to HOST:PORT. Processes in other network namespaces can connect to the
 * Unix socket, and so reach the API of the node. `relay` relays between two sockets.
 */
function relay(left: Socket, right: Socket): void {
  for (const [from, to] of [
    [left, right],
    [right, left],
  ] as const) {
    from.pipe(to);
    from.on('error', () => to.destroy());
    from.on('close', () => to.destroy());
  }
}

/**
 * Listens on a loopback port and relays each client to the Unix socket. Chooses another port if `port` is in
 * use. Resolves with the server and the chosen port.
 */
export function relayFromLoopback(port: number, socketPath: string): Promise<{ server: Server; port: number }> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => relay(socket, connect(socketPath)));
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' && port !== 0) resolve(relayFromLoopback(0, socketPath));
      else reject(error);
    });
    server.listen(port, '127.0.0.1', () => {
      const address = server.address();
      resolve({ server, port: typeof address === 'object' && address !== null ? address.port : port });
    });
  });
}

const [socketPath, host, port] = process.argv.slice(2);
if (process.argv[1]?.endsWith('relay.js') === true && socketPath !== undefined) {
  rmSync(socketPath, { force: true });
  createServer((socket) => relay(socket, connect(Number(port), host ?? '127.0.0.1'))).listen(socketPath, () => {
    process.stdout.write('ready\n');
  });
  process.stdin.on('end', () => process.exit(0)).resume();
}
