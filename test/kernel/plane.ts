import { createServer, type Server, Socket } from 'node:net';
import { parseAddress } from '#addresses/ip-address.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { planeAddress } from '#contracts/service-plane/plane-address.js';
import { canAssignToShared, openConnector, openListener } from '#sockets/socket-options.js';
import { address } from '#test/policy/sample.js';

/** The IPv4 address of the listener, and the marks of the sockets to clients and to servers. */
export const LISTEN = { address: address('127.0.0.1'), port: 15_001 };
export const MARK = 0x40_0000;
export const UPSTREAM_MARK = 0xc0_0000;

/**
 * Accepts the connections that the datapath redirects, and forwards each as the service plane does: connects
 * to the server with the client's address, and copies the data. `failed` gets the error code of each
 * connection to a server that fails.
 */
export async function openPlane(
  failed: (code: string | undefined) => void = () => {},
  family: Family = 'ipv4',
): Promise<Server> {
  const at = { address: planeAddress(LISTEN, family), port: LISTEN.port };
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => carry(socket, failed));
  await new Promise<void>((resolve) => {
    server.listen(
      { fd: openListener(at, { mark: MARK, isTransparent: true, isShared: canAssignToShared() }) },
      resolve,
    );
  });
  return server;
}

function carry(socket: Socket, failed: (code: string | undefined) => void): void {
  const { remoteAddress = '', remotePort = 0, localAddress = '', localPort = 0 } = socket;
  const fd = openConnector({ address: parseAddress(remoteAddress) ?? 0, port: remotePort }, UPSTREAM_MARK);
  // Assign the options to a constant first: the type of the constructor's parameter lacks `pauseOnCreate`, so
  // TypeScript rejects this option in an object literal.
  const options = { fd, allowHalfOpen: true, pauseOnCreate: true };
  const upstream = new Socket(options);
  socket.on('error', () => upstream.destroy());
  upstream.on('error', ({ code }: NodeJS.ErrnoException) => {
    failed(code);
    socket.destroy();
  });
  upstream.connect({ host: localAddress, port: localPort }, () => {
    socket.pipe(upstream);
    upstream.pipe(socket);
  });
}

/**
 * A Python program that sends each peer at port 443 the address of the peer and the data that it sent. Each
 * connection has a thread, because a connection whose packets are dropped never ends.
 */
export const PEER_SERVER = `
import socket, threading
s=socket.create_server(('::',443),family=socket.AF_INET6,backlog=50,dualstack_ipv6=True); print('up',flush=True)
def serve(c,a):
  try: d=c.recv(100); c.sendall(b'%s:%d ' % (a[0].removeprefix('::ffff:').encode(),a[1])+d)
  except OSError: pass
  c.close()
while True: threading.Thread(target=serve,args=s.accept(),daemon=True).start()
`;

/** A Python program that connects from `from`, sends `hello`, and prints what it receives. */
export const peerClient = (from: readonly [string, number], to: readonly [string, number]): string => `
import socket
s=socket.socket(socket.${from[0].includes(':') ? 'AF_INET6' : 'AF_INET'}); s.setsockopt(1,2,1); s.bind(('${from[0]}',${from[1]})); s.settimeout(3); s.connect(('${to[0]}',${to[1]})); s.sendall(b'hello')
d=b''
while True:
  n=s.recv(100)
  if not n: break
  d+=n
print(d.decode())
`;
