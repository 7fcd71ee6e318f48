import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export type ServerCertificate = { readonly ca: string; readonly cert: string; readonly key: string };

const NEW_KEY = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';
const opensslIn = (folder: string) => (words: string) =>
  execFileSync('openssl', words.split(' '), { cwd: folder, stdio: 'pipe' });

/**
 * Makes a CA, and a certificate of it for 127.0.0.1 and localhost, in a folder: `ca.pem`, `server.pem` and
 * `server.key`.
 */
export function makeCertificate(folder: string): ServerCertificate {
  const openssl = opensslIn(folder);
  writeFileSync(join(folder, 'server.ext'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  openssl(`req -x509 ${NEW_KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca`);
  openssl(`req ${NEW_KEY} -keyout server.key -out server.csr -subj /CN=kube-apiserver`);
  openssl(
    'x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem',
  );
  const read = (file: string) => readFileSync(join(folder, file), 'utf8');
  return { ca: read('ca.pem'), cert: read('server.pem'), key: read('server.key') };
}

/** Makes a client certificate of the CA in a folder that `makeCertificate` has filled. */
export function makeClientCertificate(folder: string, subject: string): { certPem: string; keyPem: string } {
  const openssl = opensslIn(folder);
  openssl(`req ${NEW_KEY} -keyout client.key -out client.csr -subj ${subject}`);
  openssl('x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out client.pem');
  const read = (file: string) => readFileSync(join(folder, file), 'utf8');
  return { certPem: read('client.pem'), keyPem: read('client.key') };
}
