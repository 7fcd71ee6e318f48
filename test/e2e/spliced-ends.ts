import { serverHello } from '#test/service-plane/tls/hello-bytes.js';

const SERVER_HELLO = serverHello().toString('hex');

/**
 * A python3 program for both ends of spliced connections: `serve PORT HELLO_BYTES`, or `dial ADDRESS PORT
 * HELLO_FILE COMMAND COUNT TIMES`. The client sends a recorded ClientHello and then the command. For each
 * connection, each end prints a line of JSON: the number of received bytes, their digest, and how the
 * connection ended.
 */
export const SPLICED_ENDS = `
import hashlib, json, random, socket, struct, sys, threading, time
SERVER_HELLO = bytes.fromhex('${SERVER_HELLO}')
BLOCK = random.Random(7).randbytes(1 << 16)
said = threading.Lock()
def stream(count, seed):
    at = 0
    while at < count:
        part = (struct.pack('>QQ', seed, at) + BLOCK)[:min(len(BLOCK), count - at)]
        at += len(part)
        yield part
def send(s, count, seed):
    for part in stream(count, seed): s.sendall(part)
def digest(count, seed):
    h = hashlib.sha256()
    for part in stream(count, seed): h.update(part)
    return h.hexdigest()
def tell(**what):
    with said: print(json.dumps(what), flush=True)
def receive(s, h=None, limit=None):
    h, got = h or hashlib.sha256(), 0
    try:
        while limit is None or got < limit:
            part = s.recv(1 << 18 if limit is None else min(1 << 18, limit - got))
            if not part: return dict(got=got, digest=h.hexdigest(), end='end')
            got += len(part); h.update(part)
    except ConnectionResetError:
        return dict(got=got, digest=h.hexdigest(), end='reset')
    return dict(got=got, digest=h.hexdigest(), end='open')
def abort(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()
def both(s, count, mine, **who):
    sending = threading.Thread(target=lambda: (send(s, count, mine), s.shutdown(socket.SHUT_WR)))
    sending.start(); result = receive(s); sending.join(); s.close(); tell(**who, **result)
def line(s):
    text = b''
    while not text.endswith(b'\\n'): text += s.recv(1)
    return text.decode().split()
def server(s, hello):
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    receive(s, limit=hello)
    s.sendall(SERVER_HELLO)
    what, count = line(s)
    count = int(count)
    who = dict(side='server', what=what)
    s.sendall(b'+')
    if what == 'both': both(s, count, 2, **who)
    elif what == 'client_first':
        result = receive(s); send(s, count, 2); s.close(); tell(**who, **result)
    elif what == 'server_first':
        send(s, count, 2); s.shutdown(socket.SHUT_WR); result = receive(s); s.close(); tell(**who, **result)
    elif what == 'server_resets': abort(s)
    elif what == 'slow': line(sys_in); tell(**who, **receive(s)); s.close()
    else: tell(**who, **receive(s)); s.close()
class Words:
    def recv(self, _): return sys.stdin.buffer.read(1)
sys_in = Words()
def client(address, port, hello, what, count):
    s = socket.create_connection((address, port)); s.sendall(hello)
    s.recv(len(SERVER_HELLO), socket.MSG_WAITALL)
    s.sendall(('%s %d\\n' % (what, count)).encode())
    who = dict(side='client', what=what)
    if s.recv(1) != b'+': raise Exception('not served')
    if what == 'both': both(s, count, 1, **who)
    elif what == 'client_first':
        send(s, count, 1); s.shutdown(socket.SHUT_WR); result = receive(s); s.close(); tell(**who, **result)
    elif what == 'server_first':
        result = receive(s); send(s, count, 1); s.close(); tell(**who, **result)
    elif what == 'client_resets': time.sleep(0); abort(s)
    elif what == 'slow':
        h, sent, taken = hashlib.sha256(), 0, 0
        s.settimeout(1.0)
        for part in stream(count, 1):
            at = 0
            while at < len(part):
                try: at += s.send(part[at:])
                except socket.timeout:
                    if taken == 0: taken = sent + at; tell(**who, taken=taken)
            sent += len(part); h.update(part)
        s.shutdown(socket.SHUT_WR); s.settimeout(None); tell(**who, sent=sent, digest=h.hexdigest(), **{'end': receive(s)['end']})
    else:
        tell(**who, state='open'); tell(**who, **receive(s)); s.close()
if sys.argv[1] == 'serve':
    l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); l.bind(('0.0.0.0', int(sys.argv[2]))); l.listen(512)
    print('up', flush=True)
    while True:
        s, _ = l.accept(); threading.Thread(target=server, args=(s, int(sys.argv[3])), daemon=True).start()
elif sys.argv[1] == 'digest': print(digest(int(sys.argv[2]), int(sys.argv[3])))
else:
    address, port, file, what, count, times = sys.argv[2:8]
    hello = open(file, 'rb').read()
    threads = [threading.Thread(target=client, args=(address, int(port), hello, what, int(count))) for _ in range(int(times))]
    for t in threads: t.start()
    for t in threads: t.join()
`;
