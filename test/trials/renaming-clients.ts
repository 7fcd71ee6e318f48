import { ADDRESSES } from '#cli/tour/topology.js';
import type { InspectedRig } from '#test/e2e/inspected.js';

/**
 * Python programs for TLS clients of OpenSSL and GnuTLS. After HelloRetryRequest, the client changes its
 * ClientHello and completes the handshake, so a server accepts the second ClientHello. Each program prints
 * `page`, `failed`, `reset`, `end` or `silent`.
 */
const OPENSSL = `
import ctypes, socket, sys
host, port, first, change, value = sys.argv[1:]
ssl, crypto = ctypes.CDLL('libssl.so.3'), ctypes.CDLL('libcrypto.so.3')
P, B = ctypes.c_void_p, ctypes.c_char_p
for library, name in ((ssl, 'TLS_client_method'), (ssl, 'SSL_CTX_new'), (ssl, 'SSL_new'), (crypto, 'BIO_s_mem'), (crypto, 'BIO_new')):
    getattr(library, name).restype = P
s = P(ssl.SSL_new(P(ssl.SSL_CTX_new(P(ssl.TLS_client_method())))))
incoming, outgoing = (P(crypto.BIO_new(P(crypto.BIO_s_mem()))) for _ in range(2))
ssl.SSL_set_bio(s, incoming, outgoing)
ssl.SSL_set_connect_state(s)
def name(text): ssl.SSL_ctrl(s, 55, ctypes.c_long(0), text and B(text.encode()))
def changed():
    if change == 'name': name(value)
    elif change == 'no-name': name(None)
    elif change == 'protocols': ssl.SSL_set_alpn_protos(s, B(bytes([len(value)]) + value.encode()), len(value) + 1)
    elif change == 'status': ssl.SSL_ctrl(s, 65, ctypes.c_long(1), None)
    elif change == 'signatures': ssl.SSL_ctrl(s, 98, ctypes.c_long(0), B(value.encode()))
    elif change == 'ciphers': ssl.SSL_set_ciphersuites(s, B(value.encode()))
name(first)
peer = socket.create_connection((host, int(port))); peer.settimeout(5)
def flush():
    data = ctypes.create_string_buffer(65536)
    count = crypto.BIO_read(outgoing, data, 65536)
    if count > 0: peer.sendall(data.raw[:count])
def fill():
    data = peer.recv(65536)
    if not data: raise EOFError
    crypto.BIO_write(incoming, B(data), len(data))
def run():
    flights = 0
    while True:
        done = ssl.SSL_do_handshake(s); flush()
        if done == 1: break
        if ssl.SSL_get_error(s, done) != 2: return 'failed'
        flights += 1
        if flights == 1: changed()
        fill()
    request = b'GET / HTTP/1.0\\r\\n\\r\\n'
    ssl.SSL_write(s, B(request), len(request)); flush()
    text = b''
    while b' 200' not in text:
        data = ctypes.create_string_buffer(65536)
        count = ssl.SSL_read(s, data, 65536)
        if count > 0: text += data.raw[:count]
        elif ssl.SSL_get_error(s, count) != 2: return 'failed'
        else: fill()
    return 'page'
try: print(run())
except ConnectionError: print('reset')
except EOFError: print('end')
except TimeoutError: print('silent')`;

const GNUTLS = `
import ctypes, socket, sys
host, port, first, change, value = sys.argv[1:]
lib = ctypes.CDLL('libgnutls.so.30')
P = ctypes.c_void_p
RETRY, BOTH, AGAIN, ANY = 1025, -1, -28, 0xffffffff
s, credentials = P(), P()
lib.gnutls_init(ctypes.byref(s), 2)
lib.gnutls_set_default_priority(s)
lib.gnutls_certificate_allocate_credentials(ctypes.byref(credentials))
lib.gnutls_credentials_set(s, 1, credentials)
def name(text): lib.gnutls_server_name_set(s, 1, text.encode(), len(text))
name(first)
peer = socket.create_connection((host, int(port)))
lib.gnutls_transport_set_int2(s, peer.fileno(), peer.fileno())
lib.gnutls_handshake_set_timeout(s, 5000)
@ctypes.CFUNCTYPE(ctypes.c_int, P, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, P)
def hook(session, kind, when, incoming, message):
    if kind == RETRY: name(value)
    return 0
lib.gnutls_handshake_set_hook_function(s, ctypes.c_uint(ANY), ctypes.c_int(BOTH), hook)
result = lib.gnutls_handshake(s)
if result != 0: print({-54: 'reset', -53: 'reset', -110: 'end', -319: 'silent'}.get(result, 'failed'))
else:
    request = b'GET / HTTP/1.0\\r\\n\\r\\n'
    lib.gnutls_record_send(s, request, len(request))
    text = ctypes.create_string_buffer(65536)
    count = AGAIN
    while count == AGAIN: count = lib.gnutls_record_recv(s, text, 65536)
    print('page' if b' 200' in text.raw[:max(count, 0)] else 'reset' if count == -54 else 'failed')`;

/** The field of the second ClientHello that differs from the first, and its new value. */
export type Change =
  | readonly ['name', string]
  | readonly ['no-name' | 'status', '']
  | readonly ['protocols' | 'signatures' | 'ciphers', string]
  | readonly ['nothing', ''];

export async function attack(
  rig: InspectedRig,
  library: 'openssl' | 'gnutls',
  port: number,
  first: string,
  [change, value]: Change,
): Promise<string> {
  const words = [ADDRESSES.server, String(port), first, change, value];
  const program = library === 'openssl' ? OPENSSL : GNUTLS;
  return (await rig.topology.client.run('timeout', '10', '/usr/bin/python3', '-c', program, ...words)).stdout.trim();
}
