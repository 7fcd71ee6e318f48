import { connect, createSecureContext } from 'node:tls';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { PORTS } from './site.js';

/**
 * A process that opens TLS connections; its first argument is their number. The process sends one request on
 * each connection and leaves the connection open. After the last reply, the process prints the number of open
 * connections.
 */
const count = Number(process.argv[2]);
const AT_ONCE = 64;
const secureContext = createSecureContext();
let opened = 0;
let stands = 0;

function open(): void {
  if (opened === count) return;
  opened++;
  const at = { host: ADDRESSES.server, port: PORTS.direct, servername: SERVER_NAME };
  const socket = connect({ ...at, secureContext, rejectUnauthorized: false });
  socket.once('secureConnect', () => socket.write(`GET / HTTP/1.1\r\nHost: ${SERVER_NAME}\r\n\r\n`));
  socket.once('data', () => {
    stands++;
    if (stands === count) console.log(stands);
    open();
  });
  socket.on('close', () => stands--);
  socket.on('error', (failure) => {
    console.error(failure.message);
    process.exit(1);
  });
}
for (let each = 0; each < AT_ONCE; each++) open();
